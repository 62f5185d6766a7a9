"""Train a Keras model with the plain `tf.function` loop of one process and print its speed."""

from collections.abc import Iterator

import keras
import tensorflow as tf
from baseline import (
    import_model,
    parse_arguments,
    parse_model_params,
    print_result,
    read_epoch,
    run,
)


def main() -> None:
    arguments = parse_arguments(__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    tf.config.threading.set_inter_op_parallelism_threads(arguments.threads)
    keras.utils.set_random_seed(arguments.seed)
    module, build = import_model(arguments.model_zoo, arguments.model_def)
    model = build(**parse_model_params(arguments.model_params))
    optimizer = module.optimizer()

    # The last minibatch may be smaller, and must not be a reason to trace again.
    @tf.function(reduce_retracing=True)
    def step(features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = module.loss(labels, model(features, training=True))
            if model.losses:
                loss += tf.add_n(model.losses)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def run_epoch(epoch: int) -> Iterator[tuple[int, float]]:
        arrays, order = read_epoch(arguments.data, arguments.seed + epoch)
        rows = {name: array[order] for name, array in arrays.items()}
        dataset = module.dataset_fn(tf.data.Dataset.from_tensor_slices(rows), "training")
        for features, labels in dataset.batch(arguments.minibatch_size).prefetch(1):
            if not model.built:
                # Variables have to be there before the graph is traced.
                model(features, training=False)
                optimizer.build(model.trainable_variables)
            loss = step(features, labels)
            yield int(tf.nest.flatten(labels)[0].shape[0]), float(loss)

    print_result(run(run_epoch, arguments.epochs, arguments.steps))


if __name__ == "__main__":
    main()
