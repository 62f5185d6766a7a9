"""Whatever format holds the records: the same job has the same metrics."""

import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.format_table import FORMATS, IDS, make_rows, taking
from support.local_job import LocalJob, make_spec
from support.range_server import served
from support.single_pass import predicted_rows
from support.thread_job import ZOO, run_job

from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase

MODELS = {"torch": "rows_torch.CustomModel", "keras": "rows_keras.custom_model"}

# A framework sees records, not files: Keras is given each form of them, torch each format.
FORMS = {case.dataset_fn: case for case in reversed(FORMATS)}
CASES = [
    *(pytest.param(case, "torch", id=f"{case.name}-torch") for case in FORMATS),
    *(pytest.param(case, "keras", id=f"{case.name}-keras") for case in FORMS.values()),
]
RECORDS, COLUMNS = "records", "columns"
TAKEN = [
    *(pytest.param(*case.values, RECORDS, id=f"{case.id}") for case in CASES),
    *(
        pytest.param(
            *case.values,
            COLUMNS,
            id=f"{case.id}-columns",
            # Each form of columns once by each framework; `make soak` takes all formats.
            marks=[] if case.values[0] in FORMS.values() else [pytest.mark.soak],
        )
        for case in CASES
    ),
]


def write(case, folder):
    """The training and the evaluation data of a format."""
    paths = folder / f"train.{case.suffix}", folder / f"test.{case.suffix}"
    for path, num_rows, seed in zip(paths, (120, 50), (0, 1), strict=True):
        path.write_bytes(case.write(make_rows(num_rows, seed)))
    return paths


def spec_of(case, framework, train, test, form=RECORDS, **settings):
    return make_spec(
        MODELS[framework], train, model_zoo=str(ZOO), num_epochs=2,
        **taking(form, case.dataset_fn), evaluation_data_dir=str(test),
        data_reader_params=case.params, records_per_task=40, **settings,
    )  # fmt: skip


def single_pass_of(case, framework, kind, form=RECORDS, **settings):
    return JobSpec(
        kind=kind, platform="local", model_zoo=str(ZOO), model_def=MODELS[framework],
        **taking(form, case.dataset_fn), data_reader_params=case.params, job_name="job",
        minibatch_size=8, records_per_task=20, **settings,
    )  # fmt: skip


def metrics_of(status):
    assert status.phase is JobPhase.SUCCEEDED, status.message
    return status.metrics


def predictions_of(status):
    assert status.phase is JobPhase.SUCCEEDED, status.message
    rows = predicted_rows(Path(status.predictions))
    return [[float(rows[index][f"prediction_{k}"]) for k in range(2)] for index in range(len(rows))]


@dataclass(frozen=True)
class Expected:
    metrics: dict[str, float]
    model: str
    predictions: list[list[float]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What each framework gives with the first format, and the model that it has trained."""

    @functools.cache
    def find(framework):
        folder = tmp_path_factory.mktemp(framework)
        train, test = write(FORMATS[0], folder)
        spec = spec_of(FORMATS[0], framework, train, test, output=str(folder / "model"))
        status = run_job(spec, folder)
        assert metrics_of(status)["accuracy"] > 0.8
        predicting = single_pass_of(
            FORMATS[0], framework, "predict", model=status.export,
            prediction_data_dir=str(test), prediction_outputs=str(folder / "predicted"),
        )  # fmt: skip
        predictions = predictions_of(run_job(predicting, folder / "predicting"))
        assert len(predictions) == 50
        return Expected(status.metrics, status.export, predictions)

    return find


@pytest.mark.parametrize(("case", "framework", "form"), TAKEN)
def test_training_with_evaluation(tmp_path, expected, case, framework, form):
    status = run_job(spec_of(case, framework, *write(case, tmp_path), form), tmp_path)
    assert metrics_of(status) == pytest.approx(expected(framework).metrics, rel=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("case", "framework", "form"), TAKEN)
def test_evaluating(tmp_path, expected, case, framework, form):
    _, test = write(case, tmp_path)
    spec = single_pass_of(
        case, framework, "evaluate", form, model=expected(framework).model,
        evaluation_data_dir=str(test),
    )  # fmt: skip
    assert metrics_of(run_job(spec, tmp_path)) == pytest.approx(
        expected(framework).metrics, rel=1e-6
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("case", "framework", "form"), TAKEN)
def test_predicting(tmp_path, expected, case, framework, form):
    _, test = write(case, tmp_path)
    spec = single_pass_of(
        case, framework, "predict", form, model=expected(framework).model,
        prediction_data_dir=str(test), prediction_outputs=str(tmp_path / "predicted"),
    )  # fmt: skip
    predictions = predictions_of(run_job(spec, tmp_path))
    np.testing.assert_allclose(predictions, expected(framework).predictions, rtol=1e-6)


@pytest.mark.parametrize(("framework", "name"), [("torch", "tfrecord"), ("keras", "tfrecord-gz")])
def test_real_processes_read_from_a_web_server(tmp_path, expected, framework, name):
    case = FORMATS[IDS.index(name)]
    write(case, tmp_path)
    with served(tmp_path) as web:
        train, test = (f"{web}/{which}.{case.suffix}" for which in ("train", "test"))
        spec = spec_of(case, framework, train, test, num_workers=1, seed=0)
        with LocalJob(spec, tmp_path / "home") as job:
            status = job.succeed()
    assert metrics_of(status) == pytest.approx(expected(framework).metrics, rel=1e-6)
