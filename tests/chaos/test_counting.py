"""The counting model under faults: every parameter equals the number of epochs, exactly."""

import random
from functools import partial
from itertools import product

import numpy as np
import pytest
from PIL import Image
from support.datasets import prepared_dir
from support.format_table import FORMATS, FormatCase, parquet, taking
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
ELASTIC = {"elastic_batch": "16:48"}
NUM_SEEDS = 20
NUM_DRAWN = 1
"""Of each mode; `make soak` takes all."""


def _cases():
    for mode in MODES:
        now = drawn(range(NUM_SEEDS), NUM_DRAWN, mode)
        for seed in range(NUM_SEEDS):
            marks = [] if seed in now else [pytest.mark.soak]
            yield pytest.param(mode, seed, "torch", id=f"{mode}-{seed}", marks=marks)
    yield pytest.param("sync-2", 100, "keras", id="sync-2-keras")


@pytest.mark.parametrize(("mode", "seed", "framework"), list(_cases()))
def test_every_record_counts_once_whatever_dies(mode, seed, framework, tmp_path):
    _check_modes(f"held_counting_{framework}", seed, MODES[mode], tmp_path)


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=[] if seed in now else [pytest.mark.soak])
        for now in [drawn(range(NUM_SEEDS), NUM_DRAWN, "elastic")]
        for seed in range(NUM_SEEDS)
    ],
)
def test_every_record_counts_once_while_the_batch_changes(seed, tmp_path):
    status = _check_modes("hasty_counting_torch", seed, ELASTIC, tmp_path)
    assert status.scaling.batch.updates_measured


def _check_modes(model, seed, mode, tmp_path):
    max_workers = 1 + seed % 4 if seed < 100 else 2
    gate = Gate(tmp_path / "gate")
    spec = make_spec(
        f"{model}.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={
            "num_records": NUM_RECORDS,
            "delay_ms": 10,
            "gate": str(gate.folder),
            # Waiting in the last epoch, so that the faults before meet the end of one, too.
            "free_records": NUM_RECORDS * (NUM_EPOCHS - 1),
        },
        num_epochs=NUM_EPOCHS,
        num_workers=f"1:{max_workers}",
        seed=seed,
        # To wait at the gate is no hang.
        hang_timeout=3600,
        **mode,
    )
    return check_counts(spec, tmp_path, gate, seed, max_workers)


def check_counts(spec, tmp_path, gate, seed, max_workers, faults=()):
    """Run a job of the counting model, break it, and look at every count; returns its status."""
    with LocalJob(spec, tmp_path) as job, gate:
        done = break_at_random(job, gate, seed, 6, max_workers, faults)
        status = job.succeed()
        (counts,) = job.parameters().values()
    wrong = np.flatnonzero(counts != NUM_EPOCHS)
    assert not len(wrong), f"after {done}: records {wrong[:10]} counted {counts[wrong[:10]]}"
    assert each_epoch(status) == [(NUM_RECORDS, NUM_RECORDS, 0)] * NUM_EPOCHS
    return status


def write_files(case):
    """Two files of the format, whose records have their index as label."""

    def write(folder):
        rows = [([0.5, 0.25, 0.0, -1.0], index) for index in range(NUM_RECORDS)]
        for name, part in (("a", rows[:230]), ("b", rows[230:])):
            (folder / f"{name}.{case.suffix}").write_bytes(case.write(part))

    return write


def write_images(folder):
    """As many images, whose first pixel is their index."""
    for index in range(NUM_RECORDS):
        pixels = np.full((4, 4, 3), (*divmod(index, 256), 0), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")


# With groups enough for several windows.
SMALL_GROUPS = FormatCase("parquet", "parquet", partial(parquet, rows_per_group=8), "from_arrays")
SOURCES = {
    "images": (write_images, "from_image", {}),
    **{
        case.name: (write_files(case), case.dataset_fn, case.params)
        for case in (*FORMATS, SMALL_GROUPS)
    },
}
NUM_SOURCES_DRAWN = 2
RECORDS, COLUMNS = FORMS = ("records", "columns")


def _source_cases():
    cases = [f"{name}/{mode}/{form}" for form, name, mode in product(FORMS, SOURCES, MODES)]
    now = drawn(cases, NUM_SOURCES_DRAWN, "formats")
    by_columns = [case for case in cases if case.endswith(COLUMNS)]
    now = {*now, *drawn(by_columns, NUM_SOURCES_DRAWN, "columns")}
    for number, case in enumerate(cases):
        marks = [] if case in now else [pytest.mark.soak]
        yield pytest.param(*case.split("/"), number % 100, id=case.replace("/", "-"), marks=marks)


@pytest.mark.parametrize(("source", "mode", "form", "seed"), list(_source_cases()))
def test_every_record_of_every_format_counts_once_whatever_dies(source, mode, form, seed, tmp_path):
    """Shuffled over several windows of many chunks, where the format has such."""
    write, dataset_fn, params = SOURCES[source]
    folder = tmp_path / "records"
    folder.mkdir()
    write(folder)
    gate = Gate(tmp_path / "gate")
    spec = make_spec(
        "held_counting_rows.CustomModel",
        folder,
        model_zoo=str(ZOO),
        model_params={
            "num_records": NUM_RECORDS,
            "delay_ms": 10,
            "gate": str(gate.folder),
            "free_records": NUM_RECORDS * (NUM_EPOCHS - 1),
        },
        **taking(form, dataset_fn),
        data_reader_params=params,
        num_epochs=NUM_EPOCHS,
        num_workers="1:3",
        seed=seed,
        hang_timeout=3600,
        **MODES[mode],
    )
    faults = ["worker", "master", "worker", "scale", "master"]
    random.Random(seed).shuffle(faults)
    status = check_counts(spec, tmp_path, gate, seed, 3, faults)
    assert status.workers_lost > 0
    assert status.master_restarts > 0
