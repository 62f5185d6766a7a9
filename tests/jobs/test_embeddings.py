"""Jobs whose models have tables of embeddings: what they train, keep, export and go on from."""

from pathlib import Path

import numpy as np
import pytest
from support.datasets import prepared_dir
from support.local_job import make_spec
from support.rows import check_counts, check_lives, rows_of
from support.thread_job import ZOO, ThreadJob, events, run_job
from support.zoo.embedded_regression_torch import NUM_IDS, TABLE

from elastic.checkpoints import table_files
from elastic.checkpoints.cuts import read_cut
from elastic.rpc import rows as wire
from elastic.rpc.client import MasterClient
from elastic.spec.job import JobSpec
from elastic.spec.platforms import JobKind
from elastic.spec.status import JobPhase
from elastic.worker.batches import AHEAD, Minibatches
from elastic.worker.rows import MasterRows

NUM_RECORDS = 100


def counting_spec(**settings):
    """A job of the counting model with an embedding."""
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    defaults = {
        "model_zoo": str(ZOO),
        "model_params": {"num_records": NUM_RECORDS},
        "num_workers": 2,
        "recovery_interval": 3600.0,
    }
    return make_spec("embedded_counting_torch.CustomModel", data, **{**defaults, **settings})


def evaluation_spec(**source):
    """A job that evaluates the counting model of a checkpoint or an export."""
    return JobSpec(
        kind=JobKind.EVALUATE,
        platform="local",
        job_name="job",
        model_zoo=str(ZOO),
        model_def="embedded_counting_torch.CustomModel",
        model_params={"num_records": NUM_RECORDS},
        minibatch_size=8,
        num_workers=2,
        evaluation_data_dir=str(prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"),
        **source,
    )


def cut_of(status):
    return read_cut(Path(status.checkpoint))


def succeeded(spec, folder):
    status = ThreadJob(spec, folder).run()
    assert status.phase is JobPhase.SUCCEEDED, status.message
    return status


@pytest.mark.parametrize(
    ("framework", "table"), [("torch", "items.weight"), ("keras", "items/embeddings")]
)
def test_a_table_elsewhere_trains_as_one_in_the_model(framework, table, tmp_path):
    """With a schedule, whose rate the rows of each update have too."""
    rng = np.random.default_rng(5)
    data = tmp_path / "records.npz"
    np.savez(
        data,
        ids=rng.integers(0, NUM_IDS, (60, 3)),
        label=rng.normal(size=60).astype(np.float32),
    )
    cuts = {}
    for is_ordinary in (True, False):
        name = "CustomModel" if framework == "torch" else "custom_model"
        spec = make_spec(
            f"embedded_regression_{framework}.{name}",
            data,
            model_zoo=str(ZOO),
            model_params={"is_ordinary": is_ordinary},
            num_epochs=4,
            num_workers=1,
        )
        cuts[is_ordinary] = cut_of(succeeded(spec, tmp_path / str(is_ordinary)))
    ordinary, ours = cuts[True].parameters, cuts[False].parameters
    rows = rows_of(cuts[False].rows, TABLE.name)
    assert sorted(rows) == list(range(NUM_IDS))
    found = np.stack([rows[index] for index in range(NUM_IDS)])
    np.testing.assert_allclose(found, ordinary[table], atol=1e-6)
    for name in ours:
        np.testing.assert_allclose(ours[name], ordinary[name], atol=1e-6)


def _made_following(batches):
    return batches._ahead[0].future.result() if batches._ahead else None


def test_rows_of_the_next_minibatch_come_with_the_version_that_it_is_computed_on(
    tmp_path, monkeypatch
):
    """They are asked for while it is not known yet which column they are of, and never again."""
    asked, get_rows = [], MasterClient.get_rows
    monkeypatch.setattr(
        MasterClient, "get_rows", lambda *args: asked.append(args) or get_rows(*args)
    )
    # On a busy machine the next minibatch may not be made yet, and no rows can come for it.
    monkeypatch.setattr(Minibatches, "following", property(_made_following))
    num_epochs, minibatch_size = 3, 4
    spec = counting_spec(num_epochs=num_epochs, minibatch_size=minibatch_size, num_workers=1)
    check_counts(cut_of(succeeded(spec, tmp_path)), NUM_RECORDS, num_epochs)
    assert 1 <= len(asked) <= 1 + AHEAD + 1


@pytest.mark.parametrize("settings", [{"grads_to_wait": 2}, {"use_async": True}])
def test_an_evaluation_reads_rows_of_its_version_while_training_goes_on(settings, tmp_path):
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    spec = counting_spec(
        num_epochs=6,
        evaluation_data_dir=str(data),
        evaluation_steps=2,
        evaluation_throttle_secs=0,
        evaluation_start_delay_secs=0,
        minibatch_size=4,
        **settings,
    )
    status = succeeded(spec, tmp_path / "cuts")
    assert len(status.evaluations) > 3
    assert [each.metrics["apart"] for each in status.evaluations] == pytest.approx(
        [0.0] * len(status.evaluations), abs=1e-3
    )


def test_a_resumed_job_goes_on_with_its_rows(tmp_path):
    succeeded(counting_spec(num_epochs=1), tmp_path / "cuts")
    status = succeeded(counting_spec(num_epochs=3, resume=True), tmp_path / "cuts")
    assert events(status, "Resumed")
    check_counts(cut_of(status), NUM_RECORDS, 3)


def test_a_job_begins_with_the_rows_of_a_checkpoint(tmp_path):
    first = succeeded(counting_spec(num_epochs=2), tmp_path / "first")
    spec = counting_spec(checkpoint_filename_for_init=first.checkpoint)
    check_counts(cut_of(succeeded(spec, tmp_path / "second")), NUM_RECORDS, 3)


LIVES = {
    "admitted": {"admit_after": 3},
    "expired": {"expire_after": 8},
    "evicted": {"max_rows": 40},
}


@pytest.mark.parametrize("name", LIVES)
def test_no_record_is_lost_whose_row_comes_late_or_goes(name, tmp_path):
    """Nor where the job is resumed, by which nobody counts anew."""
    params = {"num_records": NUM_RECORDS, "life": LIVES[name]}
    for num_epochs in (2, 5):
        spec = counting_spec(
            model_params=params, num_epochs=num_epochs, resume=num_epochs > 2, grads_to_wait=1
        )
        status = succeeded(spec, tmp_path / "cuts")
    cut = cut_of(status)
    check_lives(cut, NUM_RECORDS, 5, LIVES[name])
    (size,) = status.tables
    assert size.rows == len(rows_of(cut.rows))
    assert bool(size.expired) is (name == "expired")
    assert bool(size.evicted) is (name == "evicted")


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_exported_tables_are_evaluated_and_predicted_with(has_pyarrow, tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "find_spec", lambda _: has_pyarrow or None)
    output = tmp_path / "model.safetensors"
    status = succeeded(counting_spec(output=str(output)), tmp_path / "cuts")
    suffix = "parquet" if has_pyarrow else "npz"
    (table,) = (tmp_path / "model.safetensors.rows").iterdir()
    assert table.name == f"counted.{suffix}"
    (told,) = events(status, "TablesExported")
    assert told.endswith("pyarrow is not installed") is not has_pyarrow
    (size,) = status.tables
    assert (size.name, size.dim, size.rows) == ("counted", 2, NUM_RECORDS)
    for source in ({"model": str(output)}, {"checkpoint_filename_for_init": status.checkpoint}):
        evaluated = succeeded(evaluation_spec(**source), tmp_path / next(iter(source)))
        assert evaluated.metrics["apart"] == pytest.approx(0.0, abs=1e-3)
    table.unlink()
    failed = run_job(evaluation_spec(model=str(output)), tmp_path)
    assert failed.phase is JobPhase.FAILED
    assert "the rows of table 'counted' are missing" in failed.message


def test_the_best_version_is_exported_with_its_rows(tmp_path):
    """It is that of the first epoch, two before the last."""
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    output = tmp_path / "model.safetensors"
    spec = counting_spec(num_epochs=3, output=str(output), evaluation_data_dir=str(data))
    status = succeeded(
        spec.model_copy(update={"model_def": "embedded_best_torch.CustomModel"}), tmp_path / "cuts"
    )
    assert status.metrics["count"] == pytest.approx(1.0, abs=1e-3)
    check_counts(cut_of(status), NUM_RECORDS, 1)
    evaluated = succeeded(evaluation_spec(model=str(output)), tmp_path / "evaluated")
    assert evaluated.metrics["apart"] == pytest.approx(0.0, abs=1e-3)


def test_rows_that_cannot_travel_at_once_are_of_a_minibatch_that_is_too_large(
    tmp_path, monkeypatch
):
    """A row and its id are 16 bytes, so that 4 of the 8 records go."""
    monkeypatch.setattr(wire, "MAX_GRADIENT_BYTES", 64)
    status = succeeded(counting_spec(shrink_minibatches=True, num_workers=1), tmp_path / "cuts")
    assert "lower --minibatch_size" in events(status, "MinibatchFailed")[0]
    assert status.progress.shrunk_minibatch_size == 4
    check_counts(cut_of(status), NUM_RECORDS, 1)


@pytest.mark.parametrize("way", ["resume", "init_from"])
def test_a_model_that_has_lost_its_table_does_not_go_on_without_it(way, tmp_path):
    first = succeeded(counting_spec(), tmp_path / "cuts")
    settings = {"num_epochs": 2, "resume": True}
    if way == "init_from":
        settings = {"checkpoint_filename_for_init": first.checkpoint}
    without = {"num_records": NUM_RECORDS, "has_table": False}
    status = ThreadJob(counting_spec(model_params=without, **settings), tmp_path / "cuts").run()
    assert status.phase is JobPhase.FAILED
    assert "it has rows of the tables counted, and this model has no tables" in status.message


def test_local_updates_are_refused(tmp_path):
    status = run_job(counting_spec(use_async=True, get_model_steps=2), tmp_path)
    assert status.phase is JobPhase.FAILED
    assert "leave --get_model_steps out" in status.message


def test_rows_used_again_are_asked_for_once_and_still_count_once(tmp_path, monkeypatch):
    """One worker alone, which uses what it has read to the end."""
    asked, read = [], MasterRows.read

    def read_noted(self, table, ids):
        asked.extend(ids.tolist())
        return read(self, table, ids)

    monkeypatch.setattr(MasterRows, "read", read_noted)
    spec = counting_spec(num_workers=1, num_epochs=3, embedding_staleness=10_000)
    check_counts(cut_of(succeeded(spec, tmp_path)), NUM_RECORDS, 3)
    assert sorted(asked) == list(range(NUM_RECORDS))


def test_staleness_of_a_model_without_tables_is_refused(tmp_path):
    params = {"num_records": NUM_RECORDS, "has_table": False}
    status = run_job(counting_spec(model_params=params, embedding_staleness=2), tmp_path)
    assert (status.phase, status.progress.records_done) == (JobPhase.FAILED, 0)
    assert "--embedding_staleness=2 is about rows of embeddings, and the model" in status.message


def test_fewer_rows_than_servers_are_refused(tmp_path):
    params = {"num_records": NUM_RECORDS, "life": {"max_rows": 2}}
    spec = counting_spec(model_params=params, embedding_store="ps", num_ps=3)
    status = run_job(spec, tmp_path)
    assert (status.phase, status.progress.records_done) == (JobPhase.FAILED, 0)
    assert "table 'counted' has max_rows=2, of which each of the --num_ps=3" in status.message


def test_a_saved_model_is_refused_before_anything_is_trained(tmp_path):
    data = tmp_path / "records.npz"
    np.savez(data, ids=np.zeros((8, 3), np.int64), label=np.zeros(8, np.float32))
    spec = make_spec(
        "embedded_regression_keras.custom_model",
        data,
        model_zoo=str(ZOO),
        output=str(tmp_path / "model.savedmodel"),
    )
    status = run_job(spec, tmp_path / "cuts")
    assert (status.phase, status.progress.records_done) == (JobPhase.FAILED, 0)
    assert "look up their rows: let --output end in .keras" in status.message
