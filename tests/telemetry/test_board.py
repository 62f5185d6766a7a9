"""The program that shows curves in a cluster, as a process of its own."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from support.scraping import free_ports

from elastic.telemetry import board
from elastic.telemetry.event_file import EventFile
from elastic.telemetry.meter import Point

PATIENCE_S = 120


@pytest.fixture
def folder(tmp_path):
    file = EventFile(tmp_path / "events", 0)
    file.write_point(Point(3, 1.0, (("train/loss", 0.25),)))
    file.close()
    return tmp_path / "events"


def test_beside_a_master_it_serves_and_takes_little(folder):
    port = free_ports()
    command = [
        sys.executable, "-P", "-m", "elastic.telemetry.board", "--logdir", folder,
        "--port", str(port), "--beside-master",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert re.match(f"TensorBoard of {re.escape(str(folder))} at http://.*:{port}/$", line)
            address = f"http://127.0.0.1:{port}/data/plugin/scalars/tags"
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                assert b"train/loss" in answer.read()
            seen = psutil.Process(process.pid)
            assert seen.memory_info().rss < board.MAX_DATA_BYTES
            assert seen.rlimit(psutil.RLIMIT_DATA) == (board.MAX_DATA_BYTES,) * 2
            # The kernel takes this one first.
            assert Path(f"/proc/{process.pid}/oom_score_adj").read_text() == "1000\n"
            libraries = {path.path for path in seen.memory_maps()}
            assert not [path for path in libraries if "tensorflow" in path or "torch" in path]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        finally:
            process.kill()


def test_it_stays_until_the_master_has_been_gone_for_an_hour():
    """It may have none of the rights to ask what became of the job."""
    now_s = 100.0
    heard_until_s = 100.0 + 10 * board.LINGER_S

    def sleep(seconds):
        nonlocal now_s
        now_s += seconds

    board.stay_while(lambda: now_s <= heard_until_s, lambda: now_s, sleep)
    assert heard_until_s + board.LINGER_S <= now_s <= heard_until_s + board.LINGER_S + board.LOOK_S


def test_it_knows_who_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert board.is_listening(f"127.0.0.1:{port}")
    assert not board.is_listening(f"127.0.0.1:{port}")
    assert not board.is_listening("no-such-host.invalid:1")
