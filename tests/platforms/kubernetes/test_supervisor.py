"""The first process of the master's container, as a real process with real programs below it."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest
from support.kubernetes_jobs import FIRST_PROCESS
from support.local_jobs import eventually

from elastic.platforms.kubernetes.supervisor import ACCOUNT_NAME, MAX_UNCOUNTED, LifeLog

PROGRAM = """
import os, pathlib, signal, subprocess, sys, time
folder, words = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
number = len(list(folder.glob("life-*")))
(folder / f"life-{number}").write_text(str(os.getpid()))
plan = sys.argv[3:]
does = plan[min(number, len(plan) - 1)]
print(f"life {number} does {does}", flush=True)
match does:
    case "wait":
        time.sleep(60)
    case "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        (folder / "child").write_text(str(child.pid))
        os._exit(3)
    case "words":
        words.write_text("why it ended")
        sys.exit(1)
    case "leave":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        (folder / "ready").touch()
        time.sleep(60)
    case "late":
        time.sleep(2.5)
        sys.exit(4)
    case "count":
        (folder / "ACCOUNT_NAME").touch()
        sys.exit(4)
    case code:
        sys.exit(int(code))
""".replace("ACCOUNT_NAME", ACCOUNT_NAME)


class Container:
    """A supervisor at work, and what it leaves."""

    def __init__(self, folder, *plan):
        self.folder = folder
        words = folder / "termination-log"
        words.touch()
        self.log = LifeLog(folder)
        command = [sys.executable, "-m", "elastic.platforms.kubernetes.supervisor"]
        program = [sys.executable, "-c", PROGRAM, str(folder), str(words), *plan]
        self.process = subprocess.Popen(
            [*command, str(folder), str(words), *program], stdout=subprocess.PIPE, text=True
        )

    def wait(self):
        output, _ = self.process.communicate(timeout=60.0)
        return self.process.returncode, output.splitlines()

    def pid_of_life(self, number):
        path = self.folder / f"life-{number}"
        return int(eventually(lambda: path.exists() and path.read_text()))

    def began_ns(self, number):
        """When a life said its pid."""
        self.pid_of_life(number)
        return (self.folder / f"life-{number}").stat().st_mtime_ns

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()
        for path in self.folder.glob("life-*"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*plan):
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Container(folder, *plan))
        return started[-1]

    yield start
    for container in started:
        container.close()


def ends(container):
    return [(each["exitCode"], each["message"]) for each in map(_terminated, container.log.read())]


def _terminated(life):
    return life.terminated


def test_it_ends_with_a_program_that_ends_well_and_has_shown_all_it_printed(start):
    container = start("5", "words", "0")
    code, output = container.wait()
    assert code == 0
    assert output == ["life 0 does 5", "life 1 does words", "life 2 does 0"]
    assert ends(container) == [(5, "life 0 does 5\n"), (1, "why it ended"), (0, "")]
    # The kubelet does not tell the words of a life that another has followed.
    assert (container.folder / "termination-log").read_text() == ""


def test_a_killed_program_is_started_again_at_once(start):
    container = start("wait", "wait", "0")
    for number in range(2):
        os.kill(container.pid_of_life(number), signal.SIGKILL)
    assert container.wait()[0] == 0
    told = [life.terminated["exitCode"] for life in container.log.read()]
    assert told == [128 + signal.SIGKILL] * 2 + [0]
    assert [life.terminated["reason"] for life in container.log.read()] == ["Error"] * 3


def test_a_restart_is_sooner_than_a_new_container(start):
    """Side by side, so that a busy machine holds up both; a pause would hold up one."""
    container = start("wait")
    num_sooner = 0
    for number in range(5):
        os.kill(container.pid_of_life(number), signal.SIGKILL)
        other = start("wait")
        num_sooner += container.began_ns(number + 1) < other.began_ns(0)
    assert num_sooner >= 3


def test_what_a_life_has_started_ends_with_it(start):
    container = start("child", "0")
    assert container.wait()[0] == 0
    child = int((container.folder / "child").read_text())
    eventually(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_who_asks_for_an_end_gets_that_of_the_program(start):
    container = start("leave")
    eventually((container.folder / "ready").exists)
    container.process.send_signal(signal.SIGTERM)
    assert container.wait()[0] == 7
    assert len(container.log.read()) == 1


@pytest.mark.parametrize("plan", [["4"], ["4", "4", "late", "4"]], ids=["at-once", "late"])
def test_a_program_that_never_comes_to_count_its_lives_is_left_to_the_kubelet(start, plan):
    """However long one of them takes to fail."""
    container = start(*plan)
    assert container.wait()[0] == 4
    assert len(container.log.read()) == MAX_UNCOUNTED


def test_a_program_that_counts_its_lives_decides_itself_when_it_ends(start):
    container = start(*["4"] * (MAX_UNCOUNTED - 1), "count", *["4"] * MAX_UNCOUNTED)
    assert container.wait()[0] == 4
    assert len(container.log.read()) == 2 * MAX_UNCOUNTED


def test_it_stays_small():
    """It lives beside the master, within the same limit of memory."""
    code = (
        "import elastic.platforms.kubernetes.supervisor, sys; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pydantic', 'grpc', 'kubernetes')])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_it_is_made_of_the_standard_library_and_little_of_ours():
    def modules(program):
        command = [sys.executable, "-c", f"{program}; print(*__import__('sys').modules)"]
        return set(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        )

    loaded = modules("import elastic.platforms.kubernetes.supervisor") - modules("pass")
    assert {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names == {"elastic"}
    files = {f"{name.replace('.', '/').removeprefix('elastic/')}" for name in loaded}
    ours = {name.removesuffix(".py").removesuffix("/__init__") for name in FIRST_PROCESS}
    assert {name for name in files if name.startswith("platforms")} == ours
