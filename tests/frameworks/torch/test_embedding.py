"""The torch layer against nn.Embedding and nn.EmbeddingBag with the same values."""

import copy

import numpy as np
import pytest
import torch
from support.whole_tables import Away, AwayError, WholeTables
from torch.utils.checkpoint import checkpoint

from elastic.errors import ModelDefError
from elastic.frameworks.base import Batch
from elastic.frameworks.torch import TorchFramework
from elastic.frameworks.torch.embedding import Embedding
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table
from elastic.rows.ids import to_ids
from elastic.spec.model_def import ModelDef

DIM = 3


class Net(torch.nn.Module):
    """A layer of ours before one of torch's, with dropout between them where asked for."""

    def __init__(self, look_up, dropout=0.0, dim=DIM):
        super().__init__()
        self.items = look_up
        self.dropout = torch.nn.Dropout(dropout)
        self.last = torch.nn.Linear(dim, 1)

    def forward(self, features):
        made = self.items(features)
        return self.last(self.dropout(made).tanh()).reshape(len(made), -1)


def loss(labels, predictions):
    return ((predictions - labels[:, None]) ** 2).mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def built(make, batch, reader=None):
    model_def = ModelDef("net", "torch", make, loss, sgd, None, None)
    model = TorchFramework().build_model(model_def, {}, batch, 1)
    if reader is not None:
        model.read_rows_from(reader)
    return model


def batch_of(features, num_examples=None):
    num_examples = num_examples or len(features)
    return Batch(features, torch.arange(num_examples) / 4, num_examples)


def same_as(theirs_of, ours, features, their_features=None):
    """Ours and torch's layer give the same loss, and the same gradient of each row."""
    reader = WholeTables()
    table = torch.from_numpy(reader.of("items", DIM).copy())
    batch = batch_of(features, 3)
    their_batch = batch if their_features is None else batch_of(their_features, 3)
    mine = built(lambda: Net(ours), batch, reader)
    theirs = built(lambda: Net(theirs_of(table)), their_batch)
    name = next(name for name in theirs.parameters() if name.startswith("items"))
    parameters = mine.parameters()
    theirs.load({**parameters, name: theirs.parameters()[name]}, None)
    result, expected = mine.gradients(batch, 5), theirs.gradients(their_batch, 5)
    assert result.loss == pytest.approx(expected.loss, rel=1e-6)
    rows, dense = result.rows["items"], expected.gradients.pop(name)
    whole = np.zeros_like(dense)
    whole[rows.ids] = rows.values
    np.testing.assert_allclose(whole, dense, rtol=1e-5, atol=1e-7)
    for name, gradient in expected.gradients.items():
        np.testing.assert_allclose(result.gradients[name], gradient, rtol=1e-5, atol=1e-7)
    assert mine.metrics(batch)[0].values[0] == pytest.approx(
        theirs.metrics(their_batch)[0].values[0]
    )
    np.testing.assert_allclose(mine.predict(batch), theirs.predict(their_batch), rtol=1e-5)
    return rows


def bag(mode, padding=None):
    return lambda table: torch.nn.EmbeddingBag.from_pretrained(
        table, freeze=False, mode=mode, padding_idx=padding
    )


REPEATED = torch.tensor([[1, 2, 1], [7, 7, 7], [0, 2, 19]])
PADDED = torch.tensor([[1, 4, 4], [4, 4, 4], [0, 2, 19]])
PAIRS = torch.tensor([[[1, 2], [3, 4]], [[1, 1], [9, 8]], [[3, 3], [0, 2]]])


@pytest.mark.parametrize("features", [REPEATED[:, 0], REPEATED, PAIRS], ids=["one", "two", "three"])
def test_a_row_for_each_id(features):
    rows = same_as(
        lambda table: torch.nn.Embedding.from_pretrained(table, freeze=False),
        Embedding(DIM),
        features,
    )
    assert rows.ids.tolist() == sorted(set(features.flatten().tolist()))


def test_padding_gives_zeros_and_has_no_row():
    def theirs(table):
        table[4] = 0
        return torch.nn.Embedding.from_pretrained(table, freeze=False, padding_idx=4)

    assert 4 not in same_as(theirs, Embedding(DIM, padding_id=4), PADDED).ids


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize(("features", "padding"), [(REPEATED, None), (PADDED, 4)])
def test_combined_ids(mode, features, padding):
    rows = same_as(bag(mode, padding), Embedding(DIM, mode, padding_id=padding), features)
    assert padding not in rows.ids


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_any_length(mode):
    lists = [[1, 2, 2], [], [5]]
    offsets = (torch.tensor([1, 2, 2, 5]), torch.tensor([0, 3, 3]))
    array = np.empty(3, object)
    array[:] = [np.array(each, np.int32) for each in lists]

    class Bag(torch.nn.EmbeddingBag):
        def forward(self, features):
            return super().forward(*features)

    def theirs(table):
        return Bag.from_pretrained(table, freeze=False, mode=mode)

    for form in (lists, offsets, array, tuple(map(tuple, lists))):
        rows = same_as(theirs, Embedding(DIM, mode), form, offsets)
        assert rows.ids.tolist() == [1, 2, 5]


def test_the_root_of_the_number():
    layer = Embedding(2, "sqrtn", "ones", padding_id=0)
    made = layer([[1, 2, 3, 4], [5, 0], [0], []])
    assert made.tolist() == [[2, 2], [1, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [("sum", [5.0, 0.0]), ("mean", [1.0, 0.0]), ("sqrtn", [5 / 13**0.5, 0.0])],
)
def test_weights(combiner, expected):
    layer = Embedding(1, combiner, "ones", padding_id=9)
    ids = [[1, 2, 9], [3]]
    weights = [[2.0, 3.0, 100.0], [0.0]]
    assert layer(ids, weights)[:, 0].tolist() == pytest.approx(expected)
    square = torch.tensor([[2.0, 3.0, 100.0]])
    assert layer(torch.tensor([[1, 2, 9]]), square)[0].tolist() == pytest.approx(expected[:1])


def test_weights_have_gradients():
    weights = torch.tensor([[1.0, 2.0]], requires_grad=True)
    Embedding(1, "sum", "ones")(torch.tensor([[1, 2]]), weights).sum().backward()
    assert weights.grad.tolist() == [[1, 1]]


def test_texts_and_bytes_are_ids():
    layer = Embedding(2, name="words")
    expected = first_rows(Table("words", 2, "uniform(0.05)"), to_ids(["a", "é"]))
    for words in (["a", "é"], np.array(["a", "é"]), np.array([b"a", "é".encode()], object)):
        np.testing.assert_array_equal(layer(words).numpy(), expected)
    bags = Embedding(2, "sum", name="words")
    np.testing.assert_allclose(bags([["a", "é"], []])[0].numpy(), expected.sum(axis=0), rtol=1e-6)


def test_padding_may_be_a_text():
    layer = Embedding(2, padding_id="", initializer="ones")
    assert layer(["a", ""]).tolist() == [[1, 1], [0, 0]]


def test_nothing_but_padding_and_nothing_at_all():
    layer = Embedding(2, padding_id=0)
    assert layer(torch.zeros(3, dtype=torch.int64)).tolist() == [[0, 0]] * 3
    assert layer(torch.zeros(0, dtype=torch.int64)).shape == (0, 2)
    bags = Embedding(2, "mean", padding_id=0)
    assert bags(torch.zeros(2, 3, dtype=torch.int64)).tolist() == [[0, 0]] * 2
    assert bags(torch.zeros(2, 0, dtype=torch.int64)).tolist() == [[0, 0]] * 2


class Several(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = torch.nn.ModuleList([Embedding(2), Embedding(DIM, "sum", "zeros")])
        self.shared = self.block[0]
        self.own = Embedding(1, name="mine")
        self.last = torch.nn.Linear(2, 1)

    def forward(self, ids):
        made = self.block[0](ids[:, 0]) + self.shared(ids[:, 1]) ** 2 + self.own(ids[:, 0])
        return self.last(made + self.block[1](ids).sum())


def test_tables_are_named_as_layers_are():
    model = built(Several, batch_of(REPEATED))
    assert list(model.tables) == [
        Table("block.0", 2, "uniform(0.05)"),
        Table("block.1", DIM, "zeros"),
        Table("mine", 1, "uniform(0.05)"),
    ]
    assert list(model.parameters()) == ["last.weight", "last.bias"]
    assert model.state() == {}


def test_reads_of_one_table_are_merged():
    reader = WholeTables()
    model = built(Several, batch_of(REPEATED), reader)
    rows = model.gradients(batch_of(REPEATED), 1).rows
    assert {name: each.ids.tolist() for name, each in rows.items()} == {
        "block.0": [0, 1, 2, 7], "block.1": [0, 1, 2, 7, 19], "mine": [0, 1, 7],
    }  # fmt: skip
    step = 1e-3
    for place in ((2, 0), (7, 1)):
        table = reader.arrays["block.0"]
        losses = []
        for sign in (1, -1):
            table[place] += sign * step
            losses.append(model.gradients(batch_of(REPEATED), 1).loss)
            table[place] -= sign * step
        slope = (losses[0] - losses[1]) / (2 * step)
        at = rows["block.0"].ids.tolist().index(place[0])
        assert rows["block.0"].values[at, place[1]] == pytest.approx(slope, rel=0.01)


def test_rows_that_the_loss_does_not_depend_on_have_zeros():
    class Half(Several):
        def forward(self, ids):
            self.own(ids[:, 0])
            return self.last(self.block[0](ids[:, 0]))

    rows = built(Half, batch_of(REPEATED)).gradients(batch_of(REPEATED), 1).rows
    assert sorted(rows) == ["block.0", "mine"]
    assert (rows["mine"].values == 0).all()


def test_reads_that_nothing_is_derived_by_touch_no_rows():
    class Frozen(Several):
        def forward(self, ids):
            with torch.no_grad():
                made = self.own(ids[:, 0])
            return self.last(made + self.block[0](ids[:, 0]))

    rows = built(Frozen, batch_of(REPEATED)).gradients(batch_of(REPEATED), 1).rows
    assert list(rows) == ["block.0"]


def test_a_forward_pass_that_is_run_again_for_its_gradient():
    class Sparing(Net):
        def forward(self, features):
            return checkpoint(super().forward, features, use_reentrant=False)

    every = []
    for kind in (Net, Sparing):
        model = built(lambda kind=kind: kind(Embedding(DIM)), batch_of(REPEATED))
        every.append(model.gradients(batch_of(REPEATED), 1).rows["items"])
    np.testing.assert_array_equal(every[0].ids, every[1].ids)
    np.testing.assert_allclose(every[0].values, every[1].values, rtol=1e-6)


def test_evaluation_and_prediction_leave_no_gradients():
    reader = WholeTables()
    model = built(lambda: Net(Embedding(DIM)), batch_of(REPEATED), reader)
    model.gradients(batch_of(REPEATED), 1)
    model.metrics(batch_of(REPEATED[:1]))
    model.predict(batch_of(REPEATED[:1]))
    assert reader.asked[1:] == [("items", [1, 2])] * 2
    assert model.gradients(batch_of(REPEATED[1:2]), 1).rows["items"].ids.tolist() == [7]


def test_equal_seeds_give_equal_gradients():
    model = built(lambda: Net(Embedding(DIM), dropout=0.5), batch_of(REPEATED))
    first, again, other = (
        model.gradients(batch_of(REPEATED), seed).rows["items"].values for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_a_reader_raises_comes_out_as_it_is():
    model = built(lambda: Net(Embedding(DIM)), batch_of(REPEATED), Away())
    batch = batch_of(REPEATED[:1])
    for run in (lambda: model.gradients(batch, 1), lambda: model.metrics(batch)):
        with pytest.raises(AwayError, match=r"items \[1, 2\]"):
            run()
    with pytest.raises(AwayError):
        model.predict(batch)
    model.read_rows_from(WholeTables())
    assert model.gradients(batch, 1).rows


def test_rows_follow_the_precision_of_the_module():
    layer = Embedding(2).to(torch.bfloat16)
    assert layer(torch.tensor([1])).dtype is torch.bfloat16
    model = built(lambda: Net(Embedding(DIM)).double(), batch_of(REPEATED))
    assert model.gradients(batch_of(REPEATED), 1).rows["items"].values.dtype == np.float32


def test_a_copy_has_the_table_too():
    layer = Embedding(2, name="t")
    other = copy.deepcopy(layer)
    torch.testing.assert_close(layer(torch.tensor([3])), other(torch.tensor([3])))
    assert layer.state_dict() == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dim": 0}, "dim 0"),
        ({"dim": 2.0}, "dim 2.0"),
        ({"dim": 2, "combiner": "max"}, "'max': take sum, mean or sqrtn"),
        ({"dim": 2, "initializer": "glorot"}, r"'glorot'.*uniform\(0.05\)"),
        ({"dim": 2, "row_dtype": "float16"}, "'float16': take float32, bfloat16, int8"),
        ({"dim": 2, "padding_id": 0.5}, "float64"),
    ],
)
def test_arguments_are_checked(options, told):
    with pytest.raises(ModelDefError, match=told):
        Embedding(**options)


@pytest.mark.parametrize(
    ("combiner", "ids", "weights", "told"),
    [
        (None, torch.tensor([0.5]), None, "float32: give integers or texts"),
        (None, [[1], [2, 3]], None, "different lengths.*combiner"),
        (None, torch.tensor([1]), torch.tensor([1.0]), "needs a combiner"),
        ("sum", torch.tensor(1), None, "single id"),
        ("sum", [[1, 2]], [1.0], "2 ids and 1 weights"),
        ("sum", (torch.tensor([1, 2]), torch.tensor([1])), None, "ascend from 0"),
        ("sum", (torch.tensor([1, 2]), torch.tensor([0, 3])), None, "ascend from 0"),
        ("sum", [[[1], [2, 3]]], None, "lists within lists"),
    ],
)
def test_ids_are_checked(combiner, ids, weights, told):
    with pytest.raises(ModelDefError, match=told):
        Embedding(2, combiner)(ids, weights)


def test_two_tables_of_one_name_are_refused():
    def make():
        return torch.nn.Sequential(Embedding(2, name="t"), Embedding(2, name="t"))

    with pytest.raises(ModelDefError, match=r"named 't'.*its own name"):
        built(make, batch_of(REPEATED))


def test_a_model_of_embeddings_alone_is_refused():
    with pytest.raises(ModelDefError, match=r"Embedding has rows.*nothing else"):
        built(lambda: Embedding(1, "sum"), batch_of(REPEATED))


def test_the_optimizer_tells_its_rule():
    framework = TorchFramework()
    model_def = ModelDef("net", "torch", lambda: Net(Embedding(DIM)), loss, sgd, None, None)
    model = framework.build_model(model_def, {}, batch_of(REPEATED), 1)
    assert framework.build_updater(model_def, model).row_rule().kind == "sgd"
    whole = model.parameters()
    _, updater = framework.build_share(model_def, whole, {"last.bias": whole["last.bias"]}, {})
    assert updater.row_rule().kind == "sgd"


def test_a_hook_of_the_optimizer_is_refused():
    def clipping(parameters):
        optimizer = sgd(parameters)
        optimizer.register_step_pre_hook(lambda *_: None)
        return optimizer

    framework = TorchFramework()
    model_def = ModelDef("net", "torch", lambda: Net(Embedding(DIM)), loss, clipping, None, None)
    model = framework.build_model(model_def, {}, batch_of(REPEATED), 1)
    with pytest.raises(ModelDefError, match=r"hook.*rows.*leave the hook out"):
        framework.build_updater(model_def, model).row_rule()
