"""Jobs whose first minibatches nobody wants to train on are told so."""

import pytest
from support.thread_job import events, obedient_spec, run_job, write_records

from elastic.policy.minibatches import ADVICE, Oddity
from elastic.spec.status import JobPhase

MODULE = """
import torch
from obedient import *

def dataset_fn(dataset, mode):
    for record in dataset:
        index = int(record["index"])
        yield {what}
"""


def odd_spec(tmp_path, what, **settings):
    """A job of 80 records whose examples are made by an expression."""
    data = write_records(tmp_path / "train.npz", num_records=80)
    (tmp_path / "odd.py").write_text(MODULE.format(what=what))
    (tmp_path / "obedient.py").symlink_to(obedient_spec(data).model_zoo / "obedient.py")
    spec = obedient_spec(data, 80, shuffle="none", minibatch_size=4, **settings)
    return spec.model_copy(update={"model_zoo": tmp_path, "model_def": "odd.CustomModel"})


@pytest.mark.parametrize(("what", "oddity"), [
    pytest.param(
        "torch.tensor([index, 0]), torch.tensor(index // 20)", Oddity.ONE_CLASS, id="sorted"
    ),
    pytest.param("torch.tensor([0, 0]), torch.tensor(0)", Oddity.ALIKE, id="one-record-for-all"),
    pytest.param("torch.tensor([index, 0]), torch.tensor(index % 4)", None, id="mixed"),
])  # fmt: skip
@pytest.mark.parametrize("workers", [1, 2])
def test_it_is_told_once(what, oddity, workers, tmp_path):
    status = run_job(odd_spec(tmp_path, what, num_workers=workers, num_epochs=3), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    told = {each: events(status, each) for each in Oddity}
    assert told == {each: [ADVICE[each]] if each is oddity else [] for each in Oddity}
