"""The order in which records count: the same whoever works, and mixed enough to train by."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from support.datasets import prepared_dir, zoo_module
from support.format_table import FORMATS, IDS, make_rows
from support.gate import Gate
from support.local_job import LocalJob, make_spec
from support.thread_job import (
    ZOO,
    ThreadJob,
    events,
    held_spec,
    obedient_spec,
    run_job,
    write_records,
)
from zoo.plain_loops import evaluate_torch, train_torch

from elastic.checkpoints.cuts import list_cuts, read_cut
from elastic.policy.tasks.epochs import OrderForm, RecordOrder, Shuffle
from elastic.spec.status import JobPhase

NUM_RECORDS = 83
MINIBATCH = 8


def counted(log, epoch):
    """The minibatches that counted in an epoch, each as the indices of its records."""
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    updates = [line["records"] for line in lines if line["epoch"] == epoch]
    return [[i for _, start, end in runs for i in range(start, end)] for runs in updates]


def expected(epoch, seed=0, num_records=NUM_RECORDS):
    order = RecordOrder(num_records, seed, OrderForm(Shuffle.RECORDS))
    starts = range(0, num_records, MINIBATCH)
    ends = [min(start + MINIBATCH, num_records) for start in starts]
    return [order.records(epoch, *span).tolist() for span in zip(starts, ends, strict=True)]


def counting_spec(tmp_path, **settings):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    defaults = {
        "num_epochs": 2, "minibatch_size": MINIBATCH, "records_per_task": None, "grads_to_wait": 1,
    }  # fmt: skip
    log = str(tmp_path / "log")
    return obedient_spec(data, NUM_RECORDS, **{**defaults, "commit_log": log, **settings})


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"num_workers": 1}, id="1-worker"),
        pytest.param({"num_workers": 2}, id="2-workers"),
        pytest.param({"num_workers": 4}, id="4-workers"),
        pytest.param({"num_workers": 2, "use_async": True}, id="asynchronous"),
        pytest.param({"num_workers": 2, "get_model_steps": 3}, id="local-updates"),
        pytest.param({"num_workers": 2, "records_per_task": 24}, id="other-tasks"),
    ],
)
def test_the_minibatches_are_the_same_with_any_number_of_workers(tmp_path, mode):
    status = run_job(counting_spec(tmp_path, **mode), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    for epoch in range(2):
        assert sorted(counted(tmp_path / "log", epoch)) == sorted(expected(epoch))


def test_with_one_worker_they_count_in_this_order(tmp_path):
    run_job(counting_spec(tmp_path, seed=7), tmp_path)
    for epoch in range(2):
        assert counted(tmp_path / "log", epoch) == expected(epoch, seed=7)
    assert counted(tmp_path / "log", 0) != counted(tmp_path / "log", 1)


def test_a_killed_worker_and_a_killed_master_change_nothing_of_it(tmp_path):
    gate = Gate(tmp_path / "gate")
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)
    spec = held_spec(
        data, gate, NUM_RECORDS, num_workers=1, minibatch_size=MINIBATCH, num_epochs=2,
        records_per_task=40, commit_log=str(tmp_path / "log"), recovery_interval=0.1,
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job, gate:
        gate.allow(0, 3, launch=1)
        job.wait_until(lambda status: gate.waits_for(0, launch=1) == 4)
        job.kill_one("worker", 0)
        gate.allow(0, 3, launch=2)
        job.wait_until(lambda status: gate.waits_for(0, launch=2) == 4)
        cuts = job.directory.cuts_path
        job.wait_until(lambda _: any(read_cut(path).version >= 6 for path in list_cuts(cuts)))
        job.kill_one("master", 0)
        gate.open()
        status = job.succeed()
        assert job.parameters()["counts"].tolist() == [2.0] * NUM_RECORDS
    assert status.master_restarts == 1
    for epoch in range(2):
        assert counted(tmp_path / "log", epoch) == expected(epoch)


def test_a_job_that_is_resumed_within_an_epoch_goes_on_in_its_order_with_other_tasks(tmp_path):
    """Ended by its number of updates, and gone on with by more workers, which cut other tasks."""
    settings = {"checkpoint_dir": str(tmp_path / "kept"), "num_workers": 1}
    first = run_job(counting_spec(tmp_path, max_steps=4, **settings), tmp_path)
    assert first.progress.records_done == 4 * MINIBATCH
    settings["num_workers"] = 2
    resumed = counting_spec(tmp_path, resume=True, **settings)
    status = ThreadJob(resumed, tmp_path / "cuts").run()
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert counted(tmp_path / "log", 0)[:4] == expected(0)[:4]
    for epoch in range(2):
        assert sorted(counted(tmp_path / "log", epoch)) == sorted(expected(epoch))


@pytest.mark.parametrize("shuffle", ["records", "tasks", "none"])
@pytest.mark.parametrize("case", FORMATS, ids=IDS)
def test_every_record_of_every_format_counts_once(tmp_path, case, shuffle, monkeypatch):
    monkeypatch.setattr("elastic.data.picking.CHUNK_BYTES", 256)
    monkeypatch.setattr("elastic.data.formats.arrays._CHUNK_BYTES", 256)
    # Of several windows, as large data has.
    monkeypatch.setattr("elastic.data.formats.arrays._WINDOW_BYTES", 512)
    monkeypatch.setattr("elastic.data.picking.FORWARD_WINDOW_BYTES", 512)
    monkeypatch.setattr("elastic.data.picking.mixed_of.__defaults__", (512,))
    folder = tmp_path / "train"
    folder.mkdir()
    for part, num_rows in (("a", 130), ("b", 75)):
        (folder / f"{part}.{case.suffix}").write_bytes(case.write(make_rows(num_rows)))
    spec = make_spec(
        "rows_torch.CustomModel", folder, model_zoo=str(ZOO), dataset_fn=case.dataset_fn,
        num_epochs=2, data_reader_params=case.params, records_per_task=None, shuffle=shuffle,
        num_workers=2, commit_log=str(tmp_path / "log"),
    )  # fmt: skip
    status = run_job(spec, tmp_path / "cuts")
    assert status.phase is JobPhase.SUCCEEDED, status.message
    for epoch in range(2):
        seen = Counter()
        for line in map(json.loads, (tmp_path / "log").read_text().splitlines()):
            if line["epoch"] == epoch:
                for name, start, end in line["records"]:
                    seen.update((Path(name).name[0], index) for index in range(start, end))
        assert seen == Counter(
            [("a", index) for index in range(130)] + [("b", index) for index in range(75)]
        )


def test_drop_last_is_told_by_name(tmp_path):
    status = run_job(counting_spec(tmp_path, drop_last=True), tmp_path)
    assert events(status, "EpochEnded")[0].endswith(
        "; 83 records = 80 committed + 0 skipped + 3 left out (--drop_last)"
    )
    assert [(each.records, each.committed, each.left_out) for each in status.audits] == [
        (83, 80, 3)
    ]
    sizes = [len(minibatch) for minibatch in counted(tmp_path / "log", 0)]
    assert sizes == [MINIBATCH] * 10


def test_drop_last_of_all_there_is_is_refused(tmp_path):
    status = run_job(counting_spec(tmp_path, drop_last=True, minibatch_size=100), tmp_path)
    assert status.phase is JobPhase.FAILED
    assert "holds 83 records, which is less than one minibatch_size=100" in status.message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            {"minibatch_size": 40, "num_workers": 4},
            "an epoch has 3 minibatches, so 1 of 4 workers can have no work: lower --num_workers, "
            "or --minibatch_size",
            id="minibatches",
        ),
        pytest.param(
            {"records_per_task": 80, "num_workers": 3},
            "an epoch has 2 tasks, so 1 of 3 workers can have no work: leave --records_per_task "
            "out, or lower it",
            id="tasks",
        ),
    ],
)
def test_workers_that_can_have_no_work_are_told(tmp_path, settings, message):
    status = run_job(counting_spec(tmp_path, **settings), tmp_path)
    assert events(status, "WorkersIdle") == [message]


def test_a_record_that_fails_is_named_as_it_stands_in_its_file(tmp_path):
    data = write_records(tmp_path / "train.npz", {17: 1}, num_records=40)
    spec = obedient_spec(data, 40, skip_bad_records=1, commit_log=str(tmp_path / "log"))
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    (message,) = events(status, "RecordSkipped")
    assert message.startswith(f"record 17 of '{data}' failed for good: ")
    seen = [index for minibatch in counted(tmp_path / "log", 0) for index in minibatch]
    assert sorted(seen) == [index for index in range(40) if index != 17]


@pytest.fixture
def _one_thread():
    """Threads that wait for each other take long where others use the cores too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.sampled(2)
@pytest.mark.usefixtures("_one_thread")
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"num_workers": 1}, id="1-worker"),
        pytest.param({"num_workers": 2, "grads_to_wait": 2}, id="2-workers"),
        pytest.param({"num_workers": 2, "use_async": True}, id="asynchronous"),
    ],
)
def test_sorted_classes_are_learnt_as_by_a_shuffled_plain_loop(tmp_path, mode):
    folder = prepared_dir("digits")
    with np.load(folder / "train.npz") as arrays:
        order = np.argsort(arrays["label"], kind="stable")
        in_order = {name: arrays[name][order] for name in arrays.files}
    np.savez(tmp_path / "train.npz", **in_order)
    spec = make_spec(
        "digits.digits_torch.CustomModel", tmp_path / "train.npz", minibatch_size=32,
        records_per_task=None, num_epochs=6, evaluation_data_dir=str(folder / "test.npz"), **mode,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status.message
    assert status.metrics["accuracy"] > plain_accuracy(in_order, folder / "test.npz") - 0.03


def plain_accuracy(train, test):
    module = zoo_module("digits.digits_torch")
    with np.load(test) as arrays:
        tested = rows_of({name: arrays[name] for name in arrays.files})
    model = module.CustomModel()
    train_torch(module, model, rows_of(train), 6)
    return evaluate_torch(module, model, tested)["accuracy"]


def rows_of(arrays):
    return [dict(zip(arrays, row, strict=True)) for row in zip(*arrays.values(), strict=True)]
