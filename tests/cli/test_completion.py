"""What the shells are told, as they ask for it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest
import yaml
from cli.test_processes import HEAVY, environment, program
from support.cluster import eventually
from support.team import team_of, training_job_runs

from elastic.platforms.kubernetes.api.transport import READ_TIMEOUT_S

SHELLS = ("bash", "zsh", "fish")

PATIENT = [
    sys.executable, "-c",
    "from elastic.cli import options; options.COMPLETION_PATIENCE_S = 10.0\n"
    "from elastic.__main__ import main; main()",
]  # fmt: skip
"""A busy machine may take longer to ask a cluster at all than a user waits for its answer."""


def completed(words, command=None, **variables):
    """The answers to the last of the words, as bash asks for them."""
    asked = environment(
        _ELASTIC_COMPLETE="bash_complete", COMP_WORDS=" ".join(words),
        COMP_CWORD=str(len(words) - 1), **variables,
    )  # fmt: skip
    done = subprocess.run(
        command or [sys.executable, "-m", "elastic"], env=asked, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_script(run, shell):
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert f"_ELASTIC_COMPLETE={shell}_complete" in out


def test_another_shell_is_a_usage_error(run):
    code, _, err = run("completion", "tcsh")
    assert code == 2
    assert "'tcsh' is not one of" in err


def test_bash_itself_completes_by_the_script(tmp_path):
    bin_path = tmp_path / "bin"
    bin_path.mkdir()
    (bin_path / "elastic").write_text(f'#!/bin/sh\nexec {sys.executable} -m elastic "$@"\n')
    (bin_path / "elastic").chmod(0o755)
    script = (
        'eval "$(elastic completion bash)"; COMP_WORDS=(elastic st); COMP_CWORD=1; '
        '_elastic_completion elastic; echo "${COMPREPLY[@]}"'
    )
    path = f"{bin_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [shutil.which("bash"), "--norc", "-c", script], env=environment(PATH=path),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("status\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("elastic", "sc"), ["scale"]),
        (("elastic", "status", "--wa"), ["--watch"]),
        (("elastic", "train", "--num_w"), ["--num_workers"]),
        (("elastic", "train", "--platform", "l"), ["local"]),
        (("elastic", "train", "--log_level", "W"), ["WARNING"]),
        (("elastic", "logs", "--role", ""), ["master", "worker", "ps", "redis"]),
        (("elastic", "train", "--model_zoo", "zo"), ["zo"]),
    ],
)
def test_commands_flags_and_values(words, expected):
    assert completed(words) == expected


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["status", "logs", "kill", "scale", "stop", "tensorboard"])
def test_the_names_of_jobs_newest_first(command):
    jobs = program("mnist=(running(),), digits=(running(),), mine=(running(),)")
    assert completed(("elastic", command, ""), jobs) == ["mine", "digits", "mnist"]
    assert completed(("elastic", command, "m"), jobs) == ["mine", "mnist"]


def test_jobs_of_this_machine(tmp_path):
    words = ("elastic", "status", "--platform", "local", "")
    assert completed(words, ELASTIC_HOME=str(tmp_path)) == []


def test_no_cluster_has_no_jobs(tmp_path):
    assert completed(("elastic", "status", ""), KUBECONFIG="/none", HOME=str(tmp_path)) == []


def test_a_cluster_that_never_answers_is_not_waited_for(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        kubeconfig = {
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.getsockname()[1]}"}}
            ],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
        server.settimeout(0.0)

        def is_asked():
            began_s = time.monotonic()
            words = ("elastic", "status", "")
            assert completed(words, PATIENT, KUBECONFIG=str(tmp_path / "config")) == []
            assert time.monotonic() - began_s < READ_TIMEOUT_S
            with suppress(BlockingIOError):
                server.accept()[0].close()
                return True
            return False

        # Which nobody answers.
        eventually(is_asked)


def test_completing_a_command_imports_nothing_but_click():
    code = (
        "import sys; from elastic.cli.main import main\n"
        "try:\n    main([])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    asked = environment(_ELASTIC_COMPLETE="bash_complete", COMP_WORDS="elastic s", COMP_CWORD="1")
    done = subprocess.run(
        [sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["plain,status", "plain,scale", "plain,simulate", "[]"]


@pytest.mark.sampled(3)
def test_objects_of_a_kind_are_completed_after_its_name(run, tmp_path):
    path = tmp_path / "kubeconfig"
    with team_of(run, path) as team:
        training_job_runs(team)
        words = ("elastic", "status", "--kubeconfig", str(path))
        # A busy machine may not have asked within the time that a shell waits: Tab once more.
        eventually(lambda: completed((*words, "TJ/")) == ["TJ/paddlejob"])
        assert completed((*words, "tfjob/")) == []
        assert completed((*words, "pod/")) == []
