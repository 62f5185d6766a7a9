"""Plain loops whose gradients are as late as those of asynchronous jobs and of local updates.

Replicas take turns. Each computes a gradient of its own parameters, the model takes it, and after
every `own_steps` of them the replica has the model's parameters again; in between it goes on by
itself. With two replicas and one step of their own every gradient is late by one update.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf
import torch
from zoo.plain_loops import keras_batches, shuffled, torch_batches


def train_torch(
    module: ModuleType,
    build: Callable[[], torch.nn.Module],
    records: Sequence[Any],
    epochs: int,
    minibatch_size: int,
    seed: int,
    own_steps: int,
) -> torch.nn.Module:
    """Train with two replicas; returns the model."""
    model = build().train()
    optimizer = module.optimizer(model.parameters())
    replicas = [build().train() for _ in range(2)]
    own = [module.optimizer(replica.parameters()) for replica in replicas]
    for replica in replicas:
        replica.load_state_dict(model.state_dict())
    turns, steps = cycle((0, 1)), [0, 0]
    for epoch in range(epochs):
        in_order = shuffled(records, epoch, seed)
        for features, labels in torch_batches(module, in_order, "training", minibatch_size):
            turn = next(turns)
            replica, steps[turn] = replicas[turn], steps[turn] + 1
            replica.zero_grad()
            module.loss(labels, replica(features)).backward()
            for to, of in zip(model.parameters(), replica.parameters(), strict=True):
                to.grad = None if of.grad is None else of.grad.clone()
            model.load_state_dict(dict(replica.named_buffers()), strict=False)
            optimizer.step()
            if steps[turn] % own_steps:
                own[turn].step()
            else:
                replica.load_state_dict(model.state_dict())
    return model


def train_keras(
    module: ModuleType,
    build: Callable[[], keras.Model],
    records: Sequence[Any],
    epochs: int,
    minibatch_size: int,
    seed: int,
    own_steps: int,
) -> keras.Model:
    """The same with Keras."""
    model, replicas = build(), [build() for _ in range(2)]
    optimizer, *own = (module.optimizer() for _ in range(3))
    sample, _ = next(iter(keras_batches(module, records, "training", minibatch_size)))
    for each, its in ((model, optimizer), *zip(replicas, own, strict=True)):
        each(sample)
        its.build(each.trainable_variables)
        each.set_weights(model.get_weights())
    gradients_of = [_gradients(module, replica) for replica in replicas]
    turns, steps = cycle((0, 1)), [0, 0]
    for epoch in range(epochs):
        in_order = shuffled(records, epoch, seed)
        for features, labels in keras_batches(module, in_order, "training", minibatch_size):
            turn = next(turns)
            replica, steps[turn] = replicas[turn], steps[turn] + 1
            gradients = gradients_of[turn](features, labels)
            for to, of in zip(
                model.non_trainable_variables, replica.non_trainable_variables, strict=True
            ):
                to.assign(of)
            optimizer.apply(gradients, model.trainable_variables)
            if steps[turn] % own_steps:
                own[turn].apply(gradients, replica.trainable_variables)
            else:
                replica.set_weights(model.get_weights())
    return model


def _gradients(module: ModuleType, model: keras.Model) -> Callable[..., Any]:
    @tf.function(reduce_retracing=True)
    def gradients(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = module.loss(labels, model(features, training=True))
        return tape.gradient(loss, model.trainable_variables)

    return gradients
