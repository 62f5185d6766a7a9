"""What a store of parameters keeps of the time before it went back to a cut: nothing."""

import asyncio

import numpy as np
import torch
from support.served_shares import store_of

from elastic.master.parameters.store import Contribution


def staged(store, value):
    """A gradient of this number everywhere."""
    gradients = [np.full_like(each, value) for each in store.model.parameters().values()]
    return Contribution(gradients, list(store.model.state().values()), num_records=1)


def test_a_gradient_that_waited_for_its_group_is_no_part_of_the_next_one():
    store = store_of("torch", lambda parameters: torch.optim.SGD(parameters, lr=1.0))

    async def play():
        cut = await store.copy()
        store.stage(staged(store, 5.0), 1.0)
        store.own_staged()
        store.load(3, *cut)
        store.stage(staged(store, 1.0), 1.0)
        assert await store.commit() == 4
        return cut[0]

    before = asyncio.run(play())
    for name, now in store.model.parameters().items():
        np.testing.assert_allclose(now, before[name] - 1.0, rtol=1e-6)
