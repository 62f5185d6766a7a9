"""Jobs that evaluate: the metrics are those of a plain evaluation of all records at once."""

import pytest
from support.datasets import prepared_dir
from support.local_job import make_spec
from support.single_pass import metrics_of, save_model, single_pass_spec, write_records
from support.thread_job import ThreadJob, events

from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase


def run(spec, folder):
    return ThreadJob(spec, folder / "cuts").run()


@pytest.mark.parametrize(
    ("minibatch_size", "records_per_task"), [(1, 1), (4, 10), (7, 20), (64, 100)]
)
def test_metrics_do_not_depend_on_the_split(tmp_path, minibatch_size, records_per_task):
    data = write_records(tmp_path / "data.npz", 53)
    model = save_model(tmp_path / "model.safetensors")
    spec = single_pass_spec(
        "evaluate", data, tmp_path / "model.safetensors", minibatch_size=minibatch_size,
        records_per_task=records_per_task, num_workers="3",
    )  # fmt: skip
    status = run(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.kind == "evaluate"
    expected = metrics_of(model, data)
    assert status.metrics == pytest.approx(expected, abs=1e-6)
    assert (status.progress.records_done, status.progress.records_total) == (53, 53)


def test_a_record_that_fails_can_be_skipped(tmp_path):
    data = write_records(tmp_path / "data.npz", 30, {11: 1})
    save_model(tmp_path / "model.safetensors")
    spec = single_pass_spec("evaluate", data, tmp_path / "model.safetensors", skip_bad_records=1)
    status = run(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert (status.progress.records_done, status.progress.skipped) == (30, 1)
    (message,) = events(status, "RecordSkipped")
    assert "record 11 of" in message


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("framework", "name"), [("torch", "model"), ("keras", "model"), ("keras", "model.savedmodel")]
)
def test_an_export_and_a_checkpoint_give_the_metrics_of_the_job_that_made_them(
    tmp_path, framework, name
):
    data = prepared_dir("digits")
    model_def = {
        "torch": "digits.digits_torch.CustomModel", "keras": "digits.digits_keras.custom_model",
    }[framework]  # fmt: skip
    trained = ThreadJob(
        make_spec(
            model_def, data / "train.npz", evaluation_data_dir=str(data / "test.npz"),
            minibatch_size=64, records_per_task=256, output=str(tmp_path / name),
            checkpoint_dir=str(tmp_path / "checkpoints"),
        ),
        tmp_path / "trained" / "cuts",
    ).run()  # fmt: skip
    assert trained.phase is JobPhase.SUCCEEDED, trained
    for source in ({"model": trained.export}, {"checkpoint_filename_for_init": trained.checkpoint}):
        spec = JobSpec(
            kind="evaluate", platform="local", job_name="job", minibatch_size=50,
            model_zoo=make_spec(model_def, "x").model_zoo, model_def=model_def,
            evaluation_data_dir=str(data / "test.npz"), records_per_task=90, num_workers="2",
            **source,
        )  # fmt: skip
        status = run(spec, tmp_path / next(iter(source)))
        assert status.phase is JobPhase.SUCCEEDED, status
        assert status.metrics == pytest.approx(trained.metrics, abs=1e-6)
    assert (
        f"version {trained.progress.model_version} on 359 records" in events(status, "Evaluated")[0]
    )


def test_a_folder_of_checkpoints_means_its_newest(tmp_path):
    data = write_records(tmp_path / "data.npz")
    spec = single_pass_spec(
        "evaluate", data, "", checkpoint_filename_for_init=str(tmp_path / "none")
    )
    status = run(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    assert "is not there, so neither a checkpoint nor a folder of them" in status.message


@pytest.mark.parametrize(("zoo_module", "name", "words"), [
    ("single_pass.CustomModel", "model.keras", "cannot be read as safetensors"),
    ("single_pass_keras.CustomModel", "model.safetensors", "is no .keras file and no SavedModel"),
    ("single_pass_keras.CustomModel", "model.keras", "reading --model="),
])  # fmt: skip
def test_what_is_no_export_is_told(tmp_path, zoo_module, name, words):
    data = write_records(tmp_path / "data.npz")
    (tmp_path / name).write_text("no model")
    spec = single_pass_spec("evaluate", data, tmp_path / name, model_def=zoo_module)
    status = run(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    assert words in status.message
    assert str(tmp_path / name) in status.message
