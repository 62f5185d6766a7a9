"""The counting model with an embedding under faults: rows and parameters count each record once."""

import pytest
from support.gate import Gate
from support.gated_rows import NUM_EPOCHS, NUM_RECORDS, gated_spec, max_workers_of
from support.local_job import LocalJob, break_at_random
from support.rows import check_counts, check_lives
from support.seeds import drawn
from support.statuses import each_epoch

MODES = {
    "sync-1": {"grads_to_wait": 1},
    "sync-2": {"grads_to_wait": 2},
    "async": {"use_async": True},
    "used-again": {"use_async": True, "embedding_staleness": 3},
}
NUM_SEEDS = 20
NUM_DRAWN = 1
"""Of all modes together; `make soak` takes all."""


def _cases(strategy):
    cases = [f"{mode}/{seed}" for seed in range(NUM_SEEDS) for mode in MODES]
    now = drawn(cases, NUM_DRAWN, f"rows/{strategy}")
    for case in cases:
        mode, seed = case.split("/")
        marks = [] if case in now else [pytest.mark.soak]
        yield pytest.param(mode, int(seed), id=f"{mode}-{seed}", marks=marks)


@pytest.mark.parametrize(("mode", "seed"), list(_cases("master")))
def test_rows_count_once_whatever_dies(mode, seed, tmp_path):
    check(
        tmp_path, seed, ("master", "worker"), ("worker", "worker", "master", "scale"), MODES[mode]
    )


@pytest.mark.parametrize(("mode", "seed"), list(_cases("ps")))
def test_rows_count_once_beside_servers_whatever_dies(mode, seed, tmp_path):
    faults = ("ps", "worker", "master", "scale")
    check(tmp_path, seed, ("ps", "master"), faults, {"num_ps": 1 + seed % 2, **MODES[mode]})


LIVES = {
    "admitted": {"admit_after": 2},
    "expired": {"admit_after": 2, "expire_after": 20},
    "evicted": {"max_rows": 60},
}


def _life_cases(where):
    cases = [f"{name}/{seed}" for seed in range(NUM_SEEDS) for name in LIVES]
    now = drawn(cases, NUM_DRAWN, f"rows/{where}")
    for case in cases:
        name, seed = case.split("/")
        marks = [] if case in now else [pytest.mark.soak]
        yield pytest.param(name, int(seed), id=f"{name}-{seed}", marks=marks)


@pytest.mark.parametrize(("name", "seed"), list(_life_cases("lives")))
def test_no_record_is_lost_whose_row_comes_late_or_goes(name, seed, tmp_path):
    faults = ("worker", "worker", "master", "scale")
    check(tmp_path, seed, ("master", "worker"), faults, MODES["sync-1"], LIVES[name])


ON_SERVERS = ("ps", "ps", "worker", "worker", "master", "scale")
"""The first fault is a server's, whose rows are nowhere else but in cuts."""


@pytest.mark.parametrize(("name", "seed"), list(_life_cases("lives-on-ps")))
def test_no_record_is_lost_whose_row_comes_late_or_goes_from_a_server(name, seed, tmp_path):
    settings = {"num_ps": 1 + seed % 3, "embedding_store": "ps", **MODES["sync-1"]}
    check(tmp_path, seed, ("ps", "master"), ON_SERVERS, settings, LIVES[name])


@pytest.mark.parametrize(("mode", "seed"), list(_cases("rows-on-ps")))
def test_rows_on_servers_count_once_whatever_dies(mode, seed, tmp_path):
    settings = {"num_ps": 1 + seed % 3, "embedding_store": "ps", **MODES[mode]}
    check(tmp_path, seed, ("ps", "master"), ON_SERVERS, settings)


def check(tmp_path, seed, first, drawn_faults, settings, life=None):
    """Break a job, and look at every count."""
    gate = Gate(tmp_path / "gate")
    spec = gated_spec(
        gate,
        seed,
        life,
        **settings,
    )
    with LocalJob(spec, tmp_path) as job, gate:
        done = break_at_random(job, gate, seed, 5, max_workers_of(seed), first, drawn_faults)
        status = job.succeed()
        cut = job.cut()
    if life is None:
        check_counts(cut, NUM_RECORDS, NUM_EPOCHS, done)
    else:
        check_lives(cut, NUM_RECORDS, NUM_EPOCHS, life, done)
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
