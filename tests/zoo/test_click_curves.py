"""DeepFM learns as fast with its table in the master as with one in the model."""

import numpy as np
import pytest
import torch
from support.datasets import prepared_dir, zoo_module
from support.local_job import LocalJob, make_spec

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.rows.arithmetic import first_rows
from elastic.rows.base import Table

MINIBATCH_SIZE = 128
UPDATES_BETWEEN = 60
NOISE = 0.02
"""Two plain loops with other seeds differ by less."""


class OrdinaryTable(torch.nn.Module):
    """A table that is a parameter, with the rows that the elastic one would begin with."""

    def __init__(self, table, ids):
        super().__init__()
        self._ids = np.unique(ids)
        first = torch.from_numpy(first_rows(table, self._ids))
        self.table = torch.nn.Embedding.from_pretrained(first, freeze=False, sparse=True)

    def forward(self, ids):
        return self.table(torch.from_numpy(np.searchsorted(self._ids, ids.numpy())))


def read(path):
    """All features and labels of a file, as tensors."""
    reader = open_reader(str(path), 10**6, {}, None)
    (shard,) = reader.create_shards()
    blocks = list(reader.read_columns(ReadTask(shard, shard.start, shard.end)))
    columns = {name: np.concatenate([b.arrays[name] for b in blocks]) for name in blocks[0].arrays}
    features, labels = zoo_module("clicks.deepfm_torch").batch_fn(columns, "training")
    return {name: torch.from_numpy(x) for name, x in features.items()}, torch.from_numpy(labels)


def plain_curve(train, test, versions, seed=0):
    """Evaluation losses of an ordinary loop after so many updates."""
    module = zoo_module("clicks.deepfm_torch")
    torch.manual_seed(seed)
    model = module.CustomModel()
    ids = np.concatenate([train[0]["ids"].ravel(), test[0]["ids"].ravel()])
    model.rows = OrdinaryTable(Table("rows", 9, "normal(0.01)"), ids)
    model({name: x[:2] for name, x in test[0].items()})
    dense = module.optimizer(list(model.deep.parameters()))
    rows = torch.optim.SparseAdam(model.rows.parameters(), lr=dense.param_groups[0]["lr"])
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(train[1])))
    losses = []
    for update, chosen in enumerate(order.split(MINIBATCH_SIZE), 1):
        features = {name: x[chosen] for name, x in train[0].items()}
        model.zero_grad()
        module.loss(train[1][chosen], model(features)).backward()
        dense.step()
        rows.step()
        if update in versions:
            with torch.no_grad():
                losses.append(float(module.loss(test[1], model(test[0]))))
    return losses


@pytest.mark.sampled(2)
@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_curve_is_that_of_a_plain_loop(num_workers, tmp_path):
    data_dir = prepared_dir("clicks")
    spec = make_spec(
        "clicks.deepfm_torch.CustomModel",
        data_dir / "train.parquet",
        evaluation_data_dir=str(data_dir / "test.parquet"),
        minibatch_size=MINIBATCH_SIZE // num_workers,
        records_per_task=10 * MINIBATCH_SIZE,
        evaluation_steps=UPDATES_BETWEEN,
        evaluation_start_delay_secs=0.0,
        num_workers=num_workers,
    )
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
    found = {each.version: each.metrics["loss"] for each in status.evaluations}
    assert len(found) >= 3
    plain = plain_curve(*(read(data_dir / f"{part}.parquet") for part in ("train", "test")), found)
    np.testing.assert_allclose(list(found.values()), plain, atol=NOISE)
    assert plain[-1] < plain[0] - NOISE
    # A linear model of the 13 numbers reaches 0.61.
    assert status.metrics["auc"] >= 0.69, status.metrics
