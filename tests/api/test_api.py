"""The Python API: what it asks of a platform, and what it refuses."""

import subprocess
import sys

import pytest
from cli.conftest import MODULE
from cli.test_processes import HEAVY, environment
from support.scripted_platform import ScriptedPlatform, running_workers
from support.statuses import failed, running, succeeded

import elastic
from elastic import api
from elastic.client import platforms
from elastic.errors import JobNotFoundError, JobSpecError, ModelDefError, TrainingError
from elastic.spec.status import JobPhase
from elastic.spec.values import Since


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with a zoo and records; no settings of whoever runs the tests."""
    for name in ("ELASTIC_PLATFORM", "ELASTIC_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", "/none")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "mnist.py").write_text(MODULE)
    (tmp_path / "train.csv").write_text("1,2\n")
    monkeypatch.chdir(tmp_path)
    for module in (api, platforms):
        monkeypatch.setattr(module, "POLL_S", 0.0)
    return tmp_path


@pytest.fixture
def scripted(monkeypatch, place):
    """Have every platform be one that follows a script."""

    def use(**scripts):
        platform = ScriptedPlatform(**scripts)
        monkeypatch.setattr(api, "open_platform", platform)
        return platform

    return use


JOB = {
    "model_zoo": "zoo", "model_def": "mnist.CustomModel", "training_data": "train.csv",
    "minibatch_size": 8, "job_name": "one",
}  # fmt: skip


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, elastic; assert 'train' in dir(elastic)\n"
        f"print([n for n in {HEAVY!r} if n in sys.modules], 'elastic.api' in sys.modules)\n"
        "elastic.train; print('elastic.api' in sys.modules)\n"
        f"print([n for n in {HEAVY[:3]!r} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[] False\nTrue\n[]\n"


def test_a_name_that_the_package_does_not_have():
    with pytest.raises(AttributeError, match="module 'elastic' has no attribute 'trian'"):
        _ = elastic.trian


class OtherPath:
    """Of another library."""

    def __init__(self, path):
        self._path = path

    def __fspath__(self):
        return str(self._path)


def test_train_submits_what_the_keywords_say(scripted, place):
    platform = scripted(on_submit=(running(), succeeded()))
    job = elastic.train(
        **JOB, platform="local", num_workers="1:2", model_params={"units": 3},
        output=OtherPath(place / "out"), seed=None,
    )  # fmt: skip
    spec = platform.specs["one"]
    assert platform.calls == [("open", "local")]
    assert (str(spec.num_workers), spec.model_params, spec.seed) == ("1:2", {"units": 3}, 0)
    assert (str(spec.model_zoo), spec.output) == (f"{place}/zoo", f"{place}/out")
    assert job.wait().phase is JobPhase.SUCCEEDED
    assert repr(job) == "Job('one', platform='local')"


def test_keywords_win_over_the_job_file_and_it_over_the_environment(scripted, place, monkeypatch):
    monkeypatch.setenv("ELASTIC_PLATFORM", "kubernetes")
    (place / "job.yaml").write_text("platform: local\nnum_epochs: 5\nseed: 7\n")
    platform = scripted()
    elastic.train(config="job.yaml", **JOB, num_epochs=2)
    spec = platform.specs["one"]
    assert (spec.platform, spec.num_epochs, spec.seed) == ("local", 2, 7)


def test_all_that_is_wrong_is_told_in_keywords(scripted):
    platform = scripted()
    with pytest.raises(JobSpecError) as raised:
        elastic.train(model_zoo="zoo", num_epoch=3, minibatch_size="x", training_data="d", data=1)
    text = str(raised.value)
    assert "unknown setting num_epoch: did you mean num_epochs?" in text
    assert "minibatch_size is 'x': expected a whole number" in text
    assert "model_def is missing" in text
    assert not any(line.strip().startswith("--") for line in text.splitlines())
    assert platform.calls == []


def test_one_setting_by_two_names_is_refused(scripted):
    scripted()
    with pytest.raises(JobSpecError, match="training_data and training_data_dir are the same"):
        elastic.train(**JOB, training_data_dir="b")


def test_a_broken_module_starts_nothing(scripted, place):
    (place / "zoo" / "mnist.py").write_text("class CustomModel:\n    pass\n")
    platform = scripted()
    with pytest.raises(ModelDefError):
        elastic.train(**JOB, platform="local")
    assert platform.jobs() == []


def test_notes_are_warnings_of_the_line_that_asked(scripted):
    scripted()
    with pytest.warns(UserWarning, match="nothing to resume: there is no job 'one'") as told:
        elastic.train(**JOB, platform="local", resume=True)
    assert [warning.filename for warning in told] == [__file__]


def test_wait_has_an_end(scripted):
    scripted(one=(running(),))
    with pytest.raises(TimeoutError, match="job one is still Running after 0 s"):
        elastic.Job("one", "local").wait(timeout_s=0)


@pytest.mark.parametrize(
    ("end", "text"),
    [(failed(), "job one: Failed: worker-0 failed"), (running(phase="Cancelled"), "Cancelled")],
)
def test_a_bad_end_is_returned_or_raised(scripted, end, text):
    scripted(one=(running(), end))
    job = elastic.Job("one", "local")
    assert job.wait().phase is end.phase
    with pytest.raises(TrainingError, match=text) as raised:
        job.wait(check=True)
    assert raised.value.reason == end.reason


def test_wait_may_show_the_progress(scripted, capsys):
    scripted(one=(running(), succeeded()))
    elastic.Job("one", "local").wait(show=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Running     50%, 1438/2876 records")
    assert "job one: Succeeded after 1m 23s" in lines


def test_scale_waits_for_the_workers(scripted):
    four = running(desired_workers=4, workers=running_workers(4))
    platform = scripted(one=(running(), running(desired_workers=4), four))
    assert elastic.Job("one", "local").scale(4).desired_workers == 4
    assert ("scale", "one", 4) in platform.calls


def test_scale_stops_waiting(scripted):
    scripted(one=(running(),))
    job = elastic.Job("one", "local")
    with pytest.raises(TimeoutError, match="2 of 3 workers of job one run after 0 s"):
        job.scale(3, timeout_s=0)
    assert job.scale(3, wait=False).phase is JobPhase.RUNNING
    with pytest.raises(JobSpecError, match="outside the range"):
        job.scale(9)


@pytest.mark.parametrize("number", [True, 2.0, "2", None])
def test_only_whole_numbers_are_sizes(scripted, number):
    platform = scripted(one=(running(),))
    with pytest.raises(JobSpecError, match="is no whole number: give one"):
        elastic.Job("one", "local").scale(number)
    assert not any(call[0] == "scale" for call in platform.calls)


def test_a_job_that_ends_is_not_waited_for(scripted):
    scripted(one=(running(), succeeded()))
    assert elastic.Job("one", "local").scale(3).phase is JobPhase.SUCCEEDED


def test_logs_ask_as_the_command_does(scripted):
    platform = scripted(one=(running(),))
    platform.log_lines = [("worker-1", "hello")]
    lines = elastic.Job("one", "local").logs(tail=3, since="10m", index=1)
    assert [(line.replica, line.text) for line in lines] == [("worker-1", "hello")]
    asked = ("logs", ("worker-1",), False, 3, Since(600.0, before_now=True))
    assert platform.calls[-1] == asked
    list(elastic.Job("one", "local").logs(tail=-1))
    assert platform.calls[-1][3] is None
    with pytest.raises(ValueError, match="tail=-2 is no number of lines"):
        elastic.Job("one", "local").logs(tail=-2)


def test_kill_ends_and_may_forget(scripted):
    platform = scripted(one=(running(),))
    assert elastic.Job("one", "local").kill(forget=True).phase is JobPhase.CANCELLED
    assert platform.jobs() == []
    with pytest.raises(JobNotFoundError, match="no job one"):
        elastic.Job("one", "local").status()


def test_jobs_are_found_where_they_are(scripted):
    platform = scripted(one=(running(),), two=(failed(),))
    found = elastic.jobs("kubernetes", namespace="team", context="far")
    assert [(job.name, job.status().phase) for job in found] == [
        ("one", "Running"), ("two", "Failed"),
    ]  # fmt: skip
    assert (platform.choice.namespace, platform.choice.context) == ("team", "far")


def test_an_unknown_platform_is_refused():
    with pytest.raises(JobSpecError, match="no platform 'locla': name local or kubernetes"):
        elastic.Job("one", platform="locla")
