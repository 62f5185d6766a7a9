"""A store measures the gradients of its updates where asked to, and scales the rate of one."""

import asyncio

import numpy as np
import pytest
import torch
from support.served_shares import store_of

from elastic.master.parameters.store import Contribution
from elastic.policy.updates.elastic_batch import GroupGradients


def sgd_store():
    return store_of("torch", lambda parameters: torch.optim.SGD(parameters, lr=1.0))


def stage(store, value):
    """Stage a gradient of this number everywhere."""
    gradients = [np.full_like(each, value) for each in store.model.parameters().values()]
    state = list(store.model.state().values())
    store.stage(Contribution(gradients, state, num_records=4), 1.0)


def test_each_update_is_told_of_once():
    store, told = sgd_store(), []
    store.measure(told.append)
    size = sum(each.size for each in store.model.parameters().values())

    async def play():
        for values in ([1.0, 3.0], [2.0], [0.0, 2.0]):
            for value in values:
                stage(store, value)
                store.own_staged()
            await store.commit()

    asyncio.run(play())
    # One gradient alone says nothing of noise.
    assert told == [
        GroupGradients(2, 4, pytest.approx(5 * size), pytest.approx(4 * size)),
        GroupGradients(2, 4, pytest.approx(2 * size), pytest.approx(1 * size)),
    ]


def test_the_rate_of_one_update_is_scaled():
    store = sgd_store()

    async def play():
        before = {name: each.copy() for name, each in store.model.parameters().items()}
        for scale in (2.5, 1.0):
            stage(store, 1.0)
            await store.commit(rate_scale=scale)
        return before

    for name, value in asyncio.run(play()).items():
        np.testing.assert_allclose(store.model.parameters()[name], value - 3.5, rtol=1e-5)
