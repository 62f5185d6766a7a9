"""Ordinary torch layers that become tables: which do, and that they train as before."""

import numpy as np
import pytest
import torch
from torch import nn

from elastic.errors import ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.torch import TorchFramework
from elastic.rows.arithmetic import first_rows
from elastic.spec.model_def import ModelDef

NUM_IDS, DIM = 40, 4
SIZE = NUM_IDS * DIM * 4
IDS = torch.tensor([[1, 2, 1], [7, 7, 7], [0, 2, 39]])
PADDED = torch.tensor([[1, 4, 4], [4, 4, 4], [0, 2, 19]])
BAGS = (torch.tensor([1, 2, 1, 7, 39]), torch.tensor([0, 2, 2]))


class Tower(nn.Module):
    """A layer within a layer, which a list knows as well."""

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.known = [table]

    def forward(self, features):
        called = self.known[0](*features) if isinstance(features, tuple) else self.table(features)
        return called.flatten(1)[:, :DIM]


class Net(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.tower = Tower(table)
        self.small = nn.Embedding(2, 3)
        self.last = nn.Linear(DIM, 1)

    def forward(self, features):
        return self.last(torch.tanh(self.tower(features))).squeeze(1)


def loss(labels, predictions):
    return ((predictions - labels) ** 2).mean()


def built(make, features, threshold=None):
    model_def = ModelDef(
        "net", "torch", make, loss, lambda p: torch.optim.SGD(p, lr=0.1), None, None
    )
    batch = Batch(features, torch.arange(3) / 4, 3)
    return TorchFramework().build_model(model_def, {}, batch, 1, threshold), batch


class OfTable:
    """Has the rows of one ordinary weight."""

    def __init__(self, weight):
        self._weight = weight

    def read(self, table, ids):
        return self._weight[ids].copy()


@pytest.mark.parametrize(
    ("make", "features"),
    [
        pytest.param(lambda: nn.Embedding(NUM_IDS, DIM), IDS, id="embedding"),
        pytest.param(lambda: nn.Embedding(NUM_IDS, DIM, sparse=True), IDS, id="sparse"),
        pytest.param(lambda: nn.Embedding(NUM_IDS, DIM, padding_idx=4), PADDED, id="padding"),
        *(
            pytest.param(lambda m=m: nn.EmbeddingBag(NUM_IDS, DIM, mode=m), BAGS, id=f"bag-{m}")
            for m in ("sum", "mean")
        ),
        pytest.param(
            lambda: nn.EmbeddingBag(NUM_IDS, DIM, mode="mean", padding_idx=4), PADDED, id="bag-2d"
        ),
        pytest.param(
            lambda: nn.EmbeddingBag(NUM_IDS, DIM, mode="sum", include_last_offset=True),
            (BAGS[0], torch.tensor([0, 2, 2, 5])),
            id="last-offset",
        ),
        pytest.param(
            lambda: nn.EmbeddingBag(NUM_IDS, DIM, mode="sum"),
            (*BAGS, torch.tensor([0.5, 2.0, -1.0, 0.0, 3.0])),
            id="weights",
        ),
    ],
)
def test_it_gives_what_the_ordinary_layer_gives(make, features):
    theirs, batch = built(lambda: Net(make()), features)
    mine, _ = built(lambda: Net(make()), features, SIZE)
    name = "tower.table"
    assert mine.replacement.replaced == {name: "normal(1.0)"}
    (table,) = mine.tables
    assert table.name == name
    ordinary = theirs.parameters()[f"{name}.weight"]
    mine.read_rows_from(OfTable(ordinary))
    result, expected = mine.gradients(batch, 5), theirs.gradients(batch, 5)
    assert result.loss == pytest.approx(expected.loss, rel=1e-6)
    dense = expected.gradients.pop(f"{name}.weight")
    whole = np.zeros(ordinary.shape, np.float32)
    whole[result.rows[name].ids] = result.rows[name].values
    np.testing.assert_allclose(whole, dense, rtol=1e-5, atol=1e-7)
    assert list(result.gradients) == list(expected.gradients)
    np.testing.assert_allclose(mine.predict(batch), theirs.predict(batch), rtol=1e-5)


def test_rows_begin_as_the_distribution_says():
    model, _ = built(lambda: Net(nn.Embedding(NUM_IDS, DIM)), IDS, SIZE)
    (table,) = model.tables
    assert first_rows(table, np.arange(NUM_IDS)).std() == pytest.approx(1.0, abs=0.2)


def tied():
    net = Net(nn.Embedding(NUM_IDS, DIM))
    net.out = nn.Linear(DIM, NUM_IDS, bias=False)
    net.out.weight = net.tower.table.weight
    return net


def frozen(table):
    table.weight.requires_grad_(False)
    return table


def with_values(table, change):
    with torch.no_grad():
        change(table.weight)
    return table


class Own(nn.Embedding):
    pass


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (tied, "another layer has the same weight"),
        (lambda: Net(nn.Embedding(NUM_IDS, DIM, max_norm=1.0)), "max_norm"),
        (lambda: Net(nn.Embedding(NUM_IDS, DIM, scale_grad_by_freq=True)), "scale_grad_by_freq"),
        (lambda: Net(Own(NUM_IDS, DIM)), "it is a Own"),
        (lambda: Net(frozen(nn.Embedding(NUM_IDS, DIM))), "it is not trained"),
        (
            lambda: Net(with_values(nn.Embedding(NUM_IDS, DIM), lambda w: w.add_(3))),
            "its first values are neither",
        ),
        (
            lambda: Net(with_values(nn.Embedding(40, DIM, padding_idx=4), lambda w: w.fill_(1))),
            "padding_idx is not 0",
        ),
    ],
)
def test_what_would_be_something_else_stays_and_is_told(make, reason):
    model, _ = built(make, IDS, SIZE)
    assert not model.tables
    (told,) = model.replacement.left.values()
    assert reason in told


def test_smaller_layers_stay():
    model, _ = built(lambda: Net(nn.Embedding(NUM_IDS, DIM)), IDS, SIZE + 1)
    assert not model.tables
    assert (model.replacement.replaced, model.replacement.left) == ({}, {})


def test_a_model_that_reads_the_weight_is_told_which():
    class Reads(Net):
        def forward(self, features):
            return super().forward(features) + self.tower.table.weight.sum()

    with pytest.raises(ModelDefError, match=r"reads weight of the layer tower\.table"):
        built(lambda: Reads(nn.Embedding(NUM_IDS, DIM)), IDS, SIZE)


def test_ids_that_the_layer_had_not_are_refused():
    model, _ = built(lambda: Net(nn.Embedding(NUM_IDS, DIM)), IDS, SIZE)
    for wrong in (-1, NUM_IDS):
        batch = Batch(torch.full((3, 3), wrong), torch.zeros(3), 3)
        with pytest.raises(ModelDefError, match=f"given the id {wrong}, and has ids from 0 to 39"):
            model.predict(batch)
