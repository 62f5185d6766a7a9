"""Train a torch model with the plain loop of one process and print its speed as JSON.

On the GPU where torch sees one, as a worker does.
"""

from collections.abc import Iterator

import torch
from baseline import (
    import_model,
    parse_arguments,
    parse_model_params,
    print_result,
    read_epoch,
    records,
    run,
)
from batching import minibatches


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    module, build = import_model(arguments.model_zoo, arguments.model_def)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = build(**parse_model_params(arguments.model_params)).to(device).train()
    optimizer = module.optimizer(model.parameters())

    def run_epoch(epoch: int) -> Iterator[tuple[int, float]]:
        arrays, order = read_epoch(arguments.data, arguments.seed + epoch)
        examples = module.dataset_fn(records(arrays, order), "training")
        for features, labels, n in minibatches(examples, arguments.minibatch_size):
            optimizer.zero_grad()
            loss = module.loss(labels.to(device), model(features.to(device)))
            loss.backward()
            optimizer.step()
            yield n, loss.item()

    print_result(run(run_epoch, arguments.epochs, arguments.steps))


if __name__ == "__main__":
    main()
