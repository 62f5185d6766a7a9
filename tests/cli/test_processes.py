"""The command as a process of its own: what it imports, its terminal, its pipes, its signals."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios

import pytest
from cli.test_train_flags import REQUIRED

from elastic.cli.main import SUMMARIES, main

TIMEOUT_S = 300.0
"""Only a process that stands still is silent for so long."""
HEAVY = ("tensorflow", "torch", "kubernetes", "pydantic", "grpc", "rich", "yaml", "numpy")

PROGRAM = """\
import sys
from elastic.cli.main import main
from support.scripted_platform import ScriptedPlatform
from support.statuses import KILLED, running, succeeded
platform = ScriptedPlatform({scripts})
platform.log_lines = [("worker-0", "hello")] * 20_000
sys.exit(main(open_platform=platform))
"""


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm-256color"} | variables


def program(scripts, *argv):
    return [sys.executable, "-c", PROGRAM.format(scripts=scripts), *argv]


@pytest.mark.parametrize("argv", [[], ["--help"], ["version"], ["--version"]])
def test_the_bare_command_imports_nothing_but_click(argv):
    code = (
        "import sys; from elastic.cli.main import main; main(sys.argv[1:]);"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment(), capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_help_and_dry_run_load_no_framework():
    code = (
        "import sys; from elastic.cli.main import main; main(['train', '--help']);"
        "main(['train', *sys.argv[1:], '--dry_run', '--platform=local']);"
        f"print([name for name in {HEAVY[:3]!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *REQUIRED], env=environment(), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_package_itself_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "elastic", "version"], env=environment(), capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("elastic ")


class Terminal:
    """A process on a pseudo-terminal of a given size."""

    def __init__(self, command, columns, **variables):
        self._main_fd, other_fd = pty.openpty()
        fcntl.ioctl(other_fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self._process = subprocess.Popen(
            command, stdin=other_fd, stdout=other_fd, stderr=other_fd,
            env=environment(**variables), start_new_session=True,
            # Ctrl-C becomes a signal only for the terminal that controls the session.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(other_fd)
        self.shown = ""

    def wait_for(self, text):
        while text not in self.shown:
            if not self._read():
                self._process.wait(timeout=TIMEOUT_S)
                raise AssertionError(f"{text!r} was not shown: {self.shown!r}")

    def type(self, text):
        os.write(self._main_fd, text.encode())

    def end(self):
        """Everything shown, and the exit code."""
        while self._read():
            pass
        os.close(self._main_fd)
        return self.shown.replace("\r\n", "\n"), self._process.wait(timeout=TIMEOUT_S)

    def close(self):
        """Close the terminal under the process; gives the exit code."""
        os.close(self._main_fd)
        return self._process.wait(timeout=TIMEOUT_S)

    def _read(self):
        poll = select.poll()
        poll.register(self._main_fd, select.POLLIN)
        assert poll.poll(TIMEOUT_S * 1000), f"silent after {self.shown!r}"
        try:
            chunk = os.read(self._main_fd, 65536)
        except OSError:
            # Linux says so when the last process has left the terminal.
            return False
        self.shown += chunk.decode()
        return bool(chunk)


def without_styles(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("columns", [80, 160])
def test_progress_lives_at_the_bottom_of_a_terminal(columns, zoo):
    scripts = "on_submit=(running(), running(2000, events=(KILLED,)), succeeded())"
    terminal = Terminal(program(scripts, "train", *REQUIRED, "--platform=local"), columns, TZ="UTC")
    shown, code = terminal.end()
    assert code == 0
    assert "\x1b[?25h" in shown, "the cursor is shown again"
    lines = [line.rstrip() for line in without_styles(shown).splitlines()]
    # The view is drawn again whenever an event scrolls by.
    bars = list(dict.fromkeys(line for line in lines if "━" in line))
    assert [re.sub("━+[╸╺]?━*", "", bar).split() for bar in bars] == [
        ["1438/2876", "50%", "ETA", "17s"], ["2000/2876", "69%", "ETA", "10s"],
    ]  # fmt: skip
    assert all(len(bar) == columns for bar in bars)
    assert lines.count("22:13:50 worker-1 was killed (signal 9), started again") == 1
    assert "epoch 0: 1438 records, all counted once" in lines


def test_no_color_and_dumb_terminals_are_honoured(zoo):
    argv = ("train", *REQUIRED, "--platform=local")
    scripts = "on_submit=(running(), succeeded())"
    colours = re.compile(r"\x1b\[[0-9;]*3[0-7][0-9;]*m")
    assert colours.search(Terminal(program(scripts, *argv), 80).end()[0])
    assert not colours.search(Terminal(program(scripts, *argv), 80, NO_COLOR="1").end()[0])
    for plain in ("dumb", "unknown"):
        shown, _ = Terminal(program(scripts, *argv), 80, TERM=plain).end()
        assert "\x1b" not in shown
        assert "Running     50%, 1438/2876 records" in shown


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_watch_is_shown_while_it_goes_on_on_a_terminal_that_takes_text_only(name):
    command = program("one=(running(), running(2000))", "status", "one", "--watch")
    terminal = Terminal(command, 80, TERM=name)
    terminal.wait_for("1438/2876")
    terminal.wait_for("2000/2876")
    terminal.type("\x03")
    assert terminal.end()[1] == 130


def test_ctrl_c_stops_the_job_and_says_so(zoo):
    terminal = Terminal(
        program("on_submit=(running(),)", "train", *REQUIRED, "--platform=local"), 80
    )
    terminal.wait_for("1438/2876")
    terminal.type("\x03")
    shown, code = terminal.end()
    assert code == 130
    assert "stopping job test; Ctrl-C again to force it" in shown
    assert "job test has been stopped" in shown
    assert "Traceback" not in shown


def followed(tmp_path, *argv):
    """`train` in a pipe, following its job; its calls of the platform go into a file."""
    return subprocess.Popen(
        program(f"on_submit=(running(),), calls_path={str(tmp_path / 'calls')!r}", "train",
                *REQUIRED, *argv),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_job_of_this_machine_as_ctrl_c_does(zoo, tmp_path, number):
    with followed(tmp_path, "--platform=local") as process:
        assert process.stdout.readline() == "job test has been started\n"
        assert process.stdout.readline().startswith("Running     50%")
        process.send_signal(number)
        assert "job test has been stopped" in process.stderr.read()
    assert process.returncode == 130
    assert "kill test" in (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_a_job_in_a_cluster_alone(zoo, tmp_path, number):
    with followed(tmp_path, "--platform=kubernetes") as process:
        assert process.stdout.readline() == "job test has been started\n"
        assert process.stdout.readline().startswith("Running     50%")
        process.send_signal(number)
        assert "job test goes on without you" in process.stderr.read()
    assert process.returncode == 0
    assert "kill test" not in (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_watch_as_ctrl_c_does(tmp_path, number):
    with subprocess.Popen(
        [sys.executable, "-m", "elastic", "status", "-w", "--platform=local"],
        env=environment(ELASTIC_HOME=str(tmp_path), PYTHONUNBUFFERED="1"), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline() == "no jobs\n"
        process.send_signal(number)
        # click ends the line on which a terminal has shown ^C.
        assert process.communicate(timeout=TIMEOUT_S) == ("", "\n")
    assert process.returncode == 130


@pytest.mark.parametrize("module", ["elastic", "elastic.cli"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_while_the_command_is_still_imported_is_quiet(tmp_path, name, module):
    (tmp_path / "click.py").write_text(
        "import os, signal, time\n"
        f"os.kill(os.getpid(), signal.{name})\n"
        f"time.sleep({TIMEOUT_S})\n"
        "raise SystemExit('nothing interrupted the import')\n"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", module, "version"], env=environment(PYTHONPATH=path),
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_closing_the_terminal_stops_the_job(zoo, tmp_path):
    calls = tmp_path / "calls"
    terminal = Terminal(
        program(f"on_submit=(running(),), calls_path={str(calls)!r}", "train", *REQUIRED,
                "--platform=local"), 80,
    )  # fmt: skip
    terminal.wait_for("1438/2876")
    assert terminal.close() == 130
    assert "kill test" in calls.read_text().splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("line", ["has been started", "see it with"])
def test_a_detached_job_outlives_a_terminal_closed_at_its_first_words(zoo, tmp_path, line, number):
    closing = (
        "import io, os, signal, sys\n"
        "class Closing(io.StringIO):\n"
        "    def write(self, text):\n"
        f"        if {line!r} in text:\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        "        return sys.__stdout__.write(text)\n"
        "sys.stdout = Closing()\n"
    )
    calls = tmp_path / "calls"
    scripts = f"on_submit=(running(),), calls_path={str(calls)!r}"
    python, option, code, *argv = program(
        scripts, "train", *REQUIRED, "--platform=local", "--detach"
    )
    done = subprocess.run(
        [python, option, closing + code, *argv], env=environment(), capture_output=True, text=True,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0
    assert "job test goes on without you: see it with `elastic status test" in done.stderr
    assert "kill test" not in calls.read_text().splitlines()


def test_nohup_keeps_a_job_through_a_hangup(zoo, tmp_path):
    nohup = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = program("on_submit=(running(), running(2000), succeeded())", "train", *REQUIRED,
                      "--platform=local")  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", nohup, *command[1:]], env=environment(), stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "job test has been started\n"
        process.send_signal(signal.SIGHUP)
        assert "job test: Succeeded" in process.stdout.read()
    assert process.returncode == 0


def test_logs_have_colours_on_a_terminal_only():
    command = program("one=(running(),)", "logs", "one")
    shown, code = Terminal(command, 80).end()
    assert code == 0
    assert re.search(r"\x1b\[\d+m\[worker-0\]\x1b\[0m hello", shown)
    for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in Terminal(command, 80, **variables).end()[0]


def test_a_reader_that_leaves_is_no_error():
    process = subprocess.Popen(
        program("one=(running(),)", "logs", "one"), env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "[worker-0] hello\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_a_pipe_gets_lines_as_they_come(zoo):
    process = subprocess.Popen(
        program("on_submit=(running(),)", "train", *REQUIRED, "--platform=local"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "job test has been started\n"
        assert process.stdout.readline().startswith("Running     50%")
        process.terminate()


def test_help_of_every_command_fits_eighty_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for name in SUMMARIES:
        assert main([name, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert 40 < max(map(len, lines)) <= 80


def test_an_output_that_takes_nothing_is_no_bug():
    command = [sys.executable, "-m", "elastic", "zoo", "list"]
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ended = subprocess.run(
            command, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert ended.returncode == 1
    assert ended.stderr == (
        "error: the output cannot be written ([Errno 28] No space left on device)\n"
    )
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command],
        env=environment(), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (closed.returncode, closed.stderr) == (0, "")


def test_progress_that_nobody_can_see_stops_nothing(tmp_path):
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    convert = [*("data", "convert", "lines.txt", "out"), "--format=lines"]
    command = [sys.executable, "-m", "elastic", *convert]
    closed = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *command], cwd=tmp_path, env=environment(),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert (closed.returncode, closed.stdout[:15]) == (0, "wrote 2 records")


def test_what_the_locale_does_not_have_is_a_question_mark():
    script = "one=(succeeded().model_copy(update={{'message': 'Läuft → aus'}}),)"
    done = subprocess.run(
        program(script.replace("{{", "{").replace("}}", "}"), "status", "one"),
        env=environment(PYTHONIOENCODING="latin-1"), capture_output=True, check=True,
    )  # fmt: skip
    assert "Läuft ? aus".encode("latin-1") in done.stdout


def test_a_working_folder_that_was_removed_is_told(tmp_path):
    gone = tmp_path / "gone"
    command = [
        *("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"),
        *(sys.executable, "-m", "elastic", "train", *REQUIRED),
        *("--platform=local", "--dry_run"),
    ]
    gone.mkdir()
    done = subprocess.run(command, cwd=gone, env=environment(), capture_output=True, text=True)
    assert done.stderr == ("error: the working folder has been removed: cd to one that is there\n")
    assert done.returncode == 2


def test_a_reader_that_goes_leaves_the_job_running(zoo, tmp_path):
    calls = tmp_path / "calls"
    script = f"on_submit=[running()] * 3 + [succeeded()], calls_path={str(calls)!r}"
    argv = ["train", *REQUIRED, "--platform=local"]
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        program(script, *argv), env=environment(), stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert ended.returncode == 101, ended.stderr
    assert "goes on without you" in ended.stderr
    assert calls.read_text() == ""
