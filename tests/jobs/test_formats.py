"""Whatever format holds the records: the same job has the same metrics."""

import functools

import pytest
from support.format_table import FORMATS, IDS, make_rows
from support.local_job import LocalJob, make_spec
from support.range_server import served
from support.thread_job import ZOO, run_job

from elastic.spec.status import JobPhase

MODELS = {"torch": "rows_torch.CustomModel", "keras": "rows_keras.custom_model"}


def write(case, folder):
    """The training and the evaluation data of a format."""
    paths = folder / f"train.{case.suffix}", folder / f"test.{case.suffix}"
    for path, num_rows, seed in zip(paths, (120, 50), (0, 1), strict=True):
        path.write_bytes(case.write(make_rows(num_rows, seed)))
    return paths


def spec_of(case, framework, train, test, **settings):
    return make_spec(
        MODELS[framework], train, model_zoo=str(ZOO), dataset_fn=case.dataset_fn, num_epochs=2,
        evaluation_data_dir=str(test), data_reader_params=case.params, records_per_task=40,
        **settings,
    )  # fmt: skip


def metrics_of(status):
    assert status.phase is JobPhase.SUCCEEDED, status.message
    return status.metrics


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The metrics of each framework with the first format."""

    @functools.cache
    def find(framework):
        folder = tmp_path_factory.mktemp(framework)
        spec = spec_of(FORMATS[0], framework, *write(FORMATS[0], folder))
        metrics = metrics_of(run_job(spec, folder))
        assert metrics["accuracy"] > 0.8
        return metrics

    return find


@pytest.mark.parametrize("framework", MODELS)
@pytest.mark.parametrize("case", FORMATS, ids=IDS)
def test_training_with_evaluation(tmp_path, expected, case, framework):
    status = run_job(spec_of(case, framework, *write(case, tmp_path)), tmp_path)
    assert metrics_of(status) == pytest.approx(expected(framework), rel=1e-6)


@pytest.mark.parametrize(("framework", "name"), [("torch", "tfrecord"), ("keras", "tfrecord-gz")])
def test_real_processes_read_from_a_web_server(tmp_path, expected, framework, name):
    case = FORMATS[IDS.index(name)]
    write(case, tmp_path)
    with served(tmp_path) as web:
        train, test = (f"{web}/{which}.{case.suffix}" for which in ("train", "test"))
        spec = spec_of(case, framework, train, test, num_workers=1, seed=0)
        with LocalJob(spec, tmp_path / "home") as job:
            status = job.succeed()
    assert metrics_of(status) == pytest.approx(expected(framework), rel=1e-6)
