"""Predictions: one for each record, in files that say of which, or for the user's processor."""

import json

import numpy as np
import pytest
from support.gate import Gate
from support.single_pass import (
    logits_in,
    logits_of,
    predicted_rows,
    save_model,
    single_pass_spec,
    write_records,
)
from support.thread_job import ThreadJob, events

from elastic.spec.status import JobPhase

FAILS, IS_DROPPED, IS_DOUBLED = 1, 2, 3


@pytest.fixture
def job(tmp_path):
    """Run one prediction to its end; gives the status, the folder, and what is right."""

    def run(deeds=None, num_records=50, cuts="cuts", **settings):
        data = write_records(tmp_path / "data.npz", num_records, deeds)
        path = tmp_path / "model.safetensors"
        model = save_model(path)
        spec = single_pass_spec("predict", data, path, **settings)
        status = ThreadJob(spec, tmp_path / cuts).run()
        return status, logits_of(model, data)

    return run


def succeeded(status):
    assert status.phase is JobPhase.SUCCEEDED, status
    return status


def test_each_record_has_its_row_below_the_jobs_own_folder(job, tmp_path):
    status, expected = job()
    assert succeeded(status).predictions == str(tmp_path / "predictions")
    rows = predicted_rows(tmp_path / "predictions")
    assert list(rows) == list(range(50))
    np.testing.assert_allclose(logits_in(rows), expected, atol=1e-6)
    assert (status.progress.records_done, status.progress.records_total) == (50, 50)
    names = {path.name for path in (tmp_path / "predictions").glob("part-*")}
    assert "part-00000-000000000010-000000000020.csv" in names


def test_a_dict_has_its_names_and_what_is_nested_is_json(job, tmp_path):
    status, expected = job(model_params={"gives": "dict"})
    succeeded(status)
    rows = predicted_rows(tmp_path / "predictions")
    assert list(rows[0]) == ["shard", "index", "score", "square", "index2"]
    assert [int(row["index2"]) for row in rows.values()] == list(rows)
    square = np.array([json.loads(row["square"]) for row in rows.values()])
    np.testing.assert_allclose(square, expected[:, :, None] * expected[:, None, :], atol=1e-6)


@pytest.mark.parametrize(("gives", "columns"), [
    pytest.param("bfloat16", ["prediction_0", "prediction_1"], id="bfloat16"),
    pytest.param("float16", ["prediction"], id="float16-of-one-column"),
])  # fmt: skip
def test_half_precision_becomes_numbers(job, tmp_path, gives, columns):
    status, expected = job(model_params={"gives": gives})
    succeeded(status)
    rows = predicted_rows(tmp_path / "predictions")
    assert list(rows[0])[2:] == columns
    found = [float(row[columns[0]]) for row in rows.values()]
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-2, atol=1e-2)


def test_parquet_has_the_same(job, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    status, expected = job(prediction_format="parquet", model_params={"gives": "dict"})
    succeeded(status)
    manifest = json.loads((tmp_path / "predictions" / "_manifest.json").read_text())
    tables = [
        parquet.read_table(tmp_path / "predictions" / part["file"]) for part in manifest["parts"]
    ]
    rows = [row for table in tables for row in table.to_pylist()]
    assert [row["index"] for row in rows] == list(range(50))
    assert str(tables[0].schema.field("score").type) == "float"
    np.testing.assert_allclose([row["score"] for row in rows], expected[:, 0], atol=1e-6)
    np.testing.assert_allclose(
        [row["square"] for row in rows], expected[:, :, None] * expected[:, None, :], atol=1e-6
    )


def test_a_record_that_dataset_fn_drops_has_no_row_and_its_neighbours_have_theirs(job, tmp_path):
    dropped = [3, 17, *range(20, 30)]
    status, expected = job(dict.fromkeys(dropped, IS_DROPPED))
    succeeded(status)
    rows = predicted_rows(tmp_path / "predictions")
    left = [i for i in range(50) if i not in dropped]
    assert list(rows) == left
    np.testing.assert_allclose(logits_in(rows), expected[left], atol=1e-6)
    manifest = json.loads((tmp_path / "predictions" / "_manifest.json").read_text())
    assert (manifest["records"], manifest["dropped"]) == (50, 12)


def test_two_examples_of_one_record_are_an_error_that_names_it(job):
    status, _ = job({6: IS_DOUBLED})
    assert status.phase is JobPhase.FAILED
    assert "record 6 of" in status.message
    assert "dataset_fn made 2 examples of 1 records" in status.message


def test_a_failing_record_is_named(job, tmp_path):
    status, _ = job({33: FAILS})
    assert status.phase is JobPhase.FAILED
    assert "record 33 of" in status.message
    assert "record 33 cannot be read" in status.message
    assert not (tmp_path / "predictions" / "_manifest.json").exists()


def test_a_failing_record_can_be_skipped_and_costs_no_other(job, tmp_path):
    status, expected = job({33: FAILS, 35: FAILS}, skip_bad_records=2)
    succeeded(status)
    rows = predicted_rows(tmp_path / "predictions")
    left = [i for i in range(50) if i not in (33, 35)]
    assert list(rows) == left
    np.testing.assert_allclose(logits_in(rows), expected[left], atol=1e-6)
    manifest = json.loads((tmp_path / "predictions" / "_manifest.json").read_text())
    assert sorted(index for _, index in manifest["skipped"]) == [33, 35]
    assert len(events(status, "RecordSkipped")) == 2


def test_what_is_refused_leaves_whole_predictions_as_they_are(job, tmp_path):
    succeeded(job(cuts="same")[0])
    manifest = tmp_path / "predictions" / "_manifest.json"
    before = manifest.read_bytes()
    status, _ = job(cuts="same", resume=True, records_per_task=7)
    assert status.phase is JobPhase.FAILED
    assert "the predictions so far were made with records_per_task=" in status.message
    assert manifest.read_bytes() == before


def test_a_model_that_gives_no_tensor_is_told_so(job):
    status, _ = job(model_params={"gives": "nothing"})
    assert status.phase is JobPhase.FAILED
    assert "the model gives a str as prediction" in status.message


@pytest.fixture
def processed(tmp_path, monkeypatch):
    """What the processors of a job were given: record → predictions, one for each time."""
    folder = tmp_path / "processed"
    folder.mkdir()
    monkeypatch.setenv("PROCESSED_DIR", str(folder))

    def read():
        found = {}
        for path in folder.glob("[0-9]*"):
            for line in path.read_text().splitlines():
                _, _, indices, predictions = json.loads(line)
                for index, prediction in zip(indices, predictions, strict=True):
                    found.setdefault(index, []).append(prediction)
        return found

    read.folder = folder
    return read


def test_a_processor_takes_the_predictions_instead_of_files(job, tmp_path, processed):
    status, expected = job(model_def="single_pass_processed.CustomModel")
    assert succeeded(status).predictions is None
    assert not (tmp_path / "predictions").exists()
    found = processed()
    assert sorted(found) == list(range(50))
    assert all(len(times) == 1 for times in found.values())
    np.testing.assert_allclose([found[i][0] for i in range(50)], expected, atol=1e-6)
    # One for each worker, however many tasks it had.
    assert len(list(processed.folder.glob("[0-9]*"))) == 2


def test_files_are_written_beside_a_processor_where_they_are_asked_for(job, tmp_path, processed):
    status, expected = job(
        model_def="single_pass_processed.CustomModel", prediction_outputs=str(tmp_path / "out")
    )
    assert succeeded(status).predictions == str(tmp_path / "out")
    np.testing.assert_allclose(logits_in(predicted_rows(tmp_path / "out")), expected, atol=1e-6)
    assert sorted(processed()) == list(range(50))


@pytest.mark.parametrize(
    ("deed", "words"), [("fails", "no room for this prediction"), ("exits", "SystemExit")]
)
def test_a_processor_that_fails_is_a_failing_record(job, processed, deed, words):
    (processed.folder / deed).write_text("12")
    status, _ = job(model_def="single_pass_processed.CustomModel")
    assert status.phase is JobPhase.FAILED
    assert "record 12 of" in status.message
    assert words in status.message


def test_a_processor_as_elasticdl_has_it(job, processed):
    status, _ = job(model_def="single_pass_classic.CustomModel")
    succeeded(status)
    counts = [int(n) for path in processed.folder.iterdir() for n in path.read_text().split()]
    assert sum(counts) == 50


class TestFolder:
    def test_one_with_files_of_somebody_else_is_refused(self, job, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "notes.txt").write_text("mine")
        status, _ = job(prediction_outputs=str(tmp_path / "out"))
        assert status.phase is JobPhase.FAILED
        assert "holds files already (notes.txt)" in status.message
        assert "--overwrite" in status.message
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]

    def test_overwrite_replaces_predictions_and_keeps_other_files(self, job, tmp_path):
        succeeded(job(prediction_outputs=str(tmp_path / "out"), records_per_task=7)[0])
        (tmp_path / "out" / "notes.txt").write_text("mine")
        status, expected = job(
            prediction_outputs=str(tmp_path / "out"), overwrite=True, cuts="others"
        )
        succeeded(status)
        (tmp_path / "out" / "notes.txt").rename(tmp_path / "notes.txt")
        rows = predicted_rows(tmp_path / "out")
        np.testing.assert_allclose(logits_in(rows), expected, atol=1e-6)

    def test_resume_goes_on_where_an_earlier_job_stood(self, job, tmp_path):
        out = tmp_path / "out"
        settings = {"prediction_outputs": str(out), "skip_bad_records": 0}
        status, _ = job({33: FAILS}, num_workers="1", **settings)
        assert status.phase is JobPhase.FAILED
        written = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
        assert len(written) >= 3
        refused, _ = job(**settings)
        assert "go on with them with --resume" in refused.message
        status, expected = job(**settings, resume=True)
        succeeded(status)
        np.testing.assert_allclose(logits_in(predicted_rows(out)), expected, atol=1e-6)
        assert {path: path.stat().st_mtime_ns for path in written} == written
        (message,) = events(status, "Resumed")
        assert message == f"{10 * len(written)} of 50 records have been predicted already"

    def test_a_file_that_goes_before_the_end_fails_the_job(self, tmp_path, monkeypatch):
        monkeypatch.setattr("elastic.master.kinds.one_pass.SIGHT_S", 0.0)
        data = write_records(tmp_path / "data.npz")
        save_model(tmp_path / "model.safetensors")
        gate = Gate(tmp_path / "gate")
        spec = single_pass_spec(
            "predict", data, tmp_path / "model.safetensors",
            model_params={"gate": str(gate.folder), "free_records": 30}, hang_timeout=3600,
        )  # fmt: skip
        with ThreadJob(spec, tmp_path / "cuts") as job, gate:
            job.wait_until(lambda statuses: statuses and statuses[-1].progress.records_done == 30)
            gone = tmp_path / "predictions" / "part-00000-000000000010-000000000020.csv"
            gone.unlink()
            gate.open()
            status = job.wait()
        assert (status.phase, status.reason) == (JobPhase.FAILED, "PredictionsLost")
        assert gone.name in status.message
        assert not (tmp_path / "predictions" / "_manifest.json").exists()

    def test_resume_with_another_cut_into_tasks_is_refused(self, job, tmp_path):
        settings = {"prediction_outputs": str(tmp_path / "out")}
        job({33: FAILS}, **settings)
        status, _ = job(**settings, resume=True, records_per_task=20)
        assert status.phase is JobPhase.FAILED
        assert "made with records_per_task=10, this job has records_per_task=20" in status.message
