"""What a pod gives the program in it."""

import json
import os

import pytest

from elastic.errors import PlatformError, legible
from elastic.platforms.base import ExitReason
from elastic.platforms.certificates import make_certificate
from elastic.platforms.kubernetes.objects.manifests import Submission, dump_submission
from elastic.platforms.kubernetes.objects.names import ResourceOwner
from elastic.platforms.kubernetes.pods import parse_termination
from elastic.platforms.kubernetes.surroundings import PodSurroundings
from elastic.platforms.registry import MASTER_PATIENCE_S, MEMORY_VARIABLE, THREAD_VARIABLES
from elastic.spec.job import JobSpec


@pytest.fixture
def surroundings(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    return PodSurroundings(tmp_path, tmp_path, tmp_path / "termination")


@pytest.mark.parametrize("text", ["short", 'é"\n' * 5000, "\U0001f600" * 5000, "\udce9" * 2000])
def test_a_record_of_any_length_survives_what_kubernetes_keeps(surroundings, tmp_path, text):
    surroundings.say_end(ExitReason.OUT_OF_MEMORY, text, text)
    written = (tmp_path / "termination").read_bytes()
    read = parse_termination(written[:4096].decode())
    assert read.reason is ExitReason.OUT_OF_MEMORY
    assert legible(text).startswith(read.message)
    assert read.message


def test_the_token_and_the_masters_address(surroundings, monkeypatch):
    assert surroundings.token() == "secret"
    monkeypatch.delenv("ELASTIC_MASTER_ADDRESS", raising=False)
    with pytest.raises(PlatformError, match="ELASTIC_MASTER_ADDRESS is not set"):
        surroundings.address()
    monkeypatch.setenv("ELASTIC_MASTER_ADDRESS", "m:1")
    assert surroundings.address() == "m:1"


@pytest.fixture
def write_spec(tmp_path):
    required = {
        "job_name": "j",
        "model_zoo": "/zoo",
        "model_def": "a.B",
        "training_data_dir": "/d",
        "minibatch_size": 1,
    }

    def write(**settings):
        spec = JobSpec(**required, **settings)
        (tmp_path / "spec.json").write_text(spec.model_dump_json())

    return write


def write_certificate(tmp_path):
    made = make_certificate("a" * 64)
    (tmp_path / "tls.crt").write_text(made.chain)
    (tmp_path / "tls.key").write_text(made.key)
    return made


def test_the_certificate_is_that_of_the_jobs_secret(surroundings, tmp_path, write_spec):
    made = write_certificate(tmp_path)
    write_spec(tls=True)
    assert surroundings.certificate() == made


@pytest.mark.parametrize(
    "settings", [{"tls": False}, {}], ids=["no-tls", "of-before-there-was-tls"]
)
def test_a_job_that_was_submitted_without_one_speaks_in_clear(
    surroundings, tmp_path, write_spec, settings
):
    write_certificate(tmp_path)
    write_spec(**settings)
    assert surroundings.certificate() is None


def test_a_secret_without_a_certificate_is_said_before_anything_is_called(surroundings, write_spec):
    write_spec(tls=True)
    with pytest.raises(PlatformError, match=r"elastic-j-token has no certificate.*--no_tls"):
        surroundings.certificate()


def test_a_folder_without_a_job_is_named(surroundings):
    with pytest.raises(PlatformError, match=r"spec\.json.*no pod of a job"):
        surroundings.spec()


@pytest.mark.parametrize(
    ("owner", "longer"), [(None, False), (ResourceOwner("g/v1", "K", "j", "uid"), True)]
)
def test_a_master_that_is_made_again_elsewhere_is_waited_for_longer(
    surroundings, tmp_path, owner, longer
):
    submission = Submission("uid", 1.0, "image", owner)
    (tmp_path / "submission.json").write_text(dump_submission(submission))
    assert (surroundings.patience_s() > MASTER_PATIENCE_S) == longer
    assert surroundings.submission() == submission


def test_frameworks_use_the_containers_cores(surroundings, monkeypatch):
    for variable in (*THREAD_VARIABLES, MEMORY_VARIABLE):
        # Set first, so that whatever comes after is undone.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("ELASTIC_CORES", "3")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    surroundings.prepare(1)
    assert os.environ["TF_NUM_INTRAOP_THREADS"] == "3"
    assert os.environ[MEMORY_VARIABLE] == "true"
    # What the user has said stands.
    assert os.environ["OMP_NUM_THREADS"] == "7"


def test_words_that_are_no_record_are_a_log():
    assert parse_termination("Traceback") is None
    assert parse_termination(json.dumps(["reason"])) is None
    assert parse_termination(json.dumps({"reason": "Odd", "message": "x"})) is None


@pytest.mark.parametrize(("queue", "code"), [("", 0), ("team-a", 143)])
def test_who_leaves_a_queue_is_not_taken_for_one_that_is_done(queue, code):
    spec = JobSpec(
        model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1, queue=queue
    )
    assert PodSurroundings().code_of_leaving(spec) == code
