"""The counting model on parameter servers under faults: every count is the number of epochs."""

import numpy as np
import pytest
from support.datasets import prepared_dir
from support.gate import Gate
from support.local_job import LocalJob, break_at_random, make_spec
from support.seeds import drawn
from support.statuses import each_epoch
from support.thread_job import ZOO

NUM_RECORDS = 403  # no multiple of a task or a minibatch
NUM_EPOCHS = 3

MODES = {
    "sync-1": {"grads_to_wait": 1},
    "sync-2": {"grads_to_wait": 2},
    "async": {"use_async": True, "lr_staleness_modulation": True},
    "local-4": {"use_async": True, "get_model_steps": 4},
}
FAULTS = ("ps", "ps", "worker", "worker", "master", "scale")
NUM_SEEDS = 20
NUM_DRAWN = 1
"""Of each mode; `make soak` takes all."""


def _cases():
    for mode in MODES:
        now = drawn(range(NUM_SEEDS), NUM_DRAWN, f"servers/{mode}")
        for seed in range(NUM_SEEDS):
            marks = [] if seed in now else [pytest.mark.soak]
            yield pytest.param(mode, seed, id=f"{mode}-{seed}", marks=marks)


@pytest.mark.parametrize(("mode", "seed"), list(_cases()))
def test_every_record_counts_once_whatever_dies(mode, seed, tmp_path):
    """The first fault is a server's, so that each job goes back to a cut at least once."""
    max_workers = 1 + seed % 3
    gate = Gate(tmp_path / "gate")
    spec = make_spec(
        "spread_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={
            "num_records": NUM_RECORDS,
            "delay_ms": 10,
            "gate": str(gate.folder),
            "free_records": NUM_RECORDS * (NUM_EPOCHS - 1),
        },
        num_epochs=NUM_EPOCHS,
        num_workers=f"1:{max_workers}",
        num_ps=1 + seed % 3,
        seed=seed,
        # To wait at the gate is no hang.
        hang_timeout=3600,
        **MODES[mode],
    )
    with LocalJob(spec, tmp_path) as job, gate:
        done = break_at_random(job, gate, seed, 6, max_workers, ("ps",), FAULTS)
        status = job.succeed()
        parameters = job.parameters()
    assert len(parameters) == 3
    for name, counts in parameters.items():
        wrong = np.flatnonzero(counts != NUM_EPOCHS)
        assert not len(wrong), f"after {done}: {name}{wrong[:10]} counted {counts[wrong[:10]]}"
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
