"""`elastic data`: what it prints, and what becomes of a conversion that is killed."""

import gzip
import io
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from elastic.cli import data
from elastic.data.writers import WRITERS
from elastic.telemetry.progress import (
    ConversionProgress,
    LiveCountingDisplay,
    PlainCountingDisplay,
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{number},{number / 2},n{number}\n" for number in range(5))
    (tmp_path / "a.csv").write_text(f"i,x,name\n{rows}")
    return tmp_path


def test_show_tells_what_a_dataset_fn_gets(run, table):
    code, out, _ = run("data", "show", "a.csv", "--records", "1")
    assert code == 0
    assert out.splitlines() == [
        "5 records in 1 shard of 1 source",
        "  a.csv: 5 records",
        "a record is a dict of",
        "  i     str",
        "  x     str",
        "  name  str",
        "",
        "record 0",
        "  i: '0'",
        "  x: '0.0'",
        "  name: 'n0'",
    ]


def test_show_of_images_tells_the_classes(run, table):
    for name in ("cat", "dog"):
        (table / "pets" / name).mkdir(parents=True)
        Image.new("RGB", (8, 4)).save(table / "pets" / name / "0.png")
    code, out, _ = run("data", "show", "pets", "--records", "0", "--data_reader_params", "size=2x3")
    assert code == 0
    assert out.splitlines() == [
        "2 records in 1 shard of 1 source",
        "  pets/: 2 records",
        "classes: 0 cat, 1 dog",
        "a record is a dict of",
        "  image  uint8 (2, 3, 3)",
        "  label  int64",
        "  path   str",
    ]


def test_show_of_other_records(run, table):
    np.save(table / "a.npy", np.zeros((3, 2)))
    (table / "b.txt").write_text("hello\n")
    assert "a record is a ndarray: float64 (2)" in run("data", "show", "a.npy")[1]
    assert "a record is a str: str\n\nrecord 0\n  'hello'" in run("data", "show", "b.txt")[1]
    code, _, err = run("data", "show", "none.csv")
    assert code == 1
    assert err.startswith("error: none.csv does not exist: check the path")


def test_convert(run, table):
    code, out, err = run(
        "data", "convert", "a.csv", "out", "--type", "*=float32", "--type", "name=str",
        "--format", "parquet", "--records-per-file", "2",
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert out == ("wrote 5 records in 3 files to out\nread them with --training_data_dir out\n")
    assert "x     float32\n  name  str" in run("data", "show", "out")[1]


def test_convert_shuffles_by_a_seed(run, table):
    """Other files for another seed; what is written twice is alike."""
    orders = []
    for out, seed in (("one", "1"), ("two", "2"), ("again", "1")):
        found = run("data", "convert", "a.csv", out, "--shuffle", "--seed", seed)
        assert found[0] == 0, found
        with np.load(table / out / "part-00000.npz") as arrays:
            orders.append(arrays["i"].tolist())
    assert orders[0] == orders[2] != orders[1]
    assert all(sorted(order) == ["0", "1", "2", "3", "4"] for order in orders)
    assert ["0", "1", "2", "3", "4"] not in orders


def test_convert_refuses_to_shuffle_what_is_read_forward(run, table):
    (table / "a.csv.gz").write_bytes(gzip.compress((table / "a.csv").read_bytes()))
    code, _, err = run("data", "convert", "a.csv.gz", "out", "--shuffle")
    assert code == 1
    assert err.startswith("error: a.csv.gz is compressed, so it can only be read forward, and --sh")
    assert not (table / "out").exists()


@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (["--type", "x=floot"], 2, "error: --type x=floot is not FIELD=DTYPE: write one like"),
        (["--type", "float32"], 2, "error: --type float32 is not FIELD=DTYPE"),
        (["--data_reader_params", "size"], 2, "error: --data_reader_params: 'size' in 'size' has"),
        (["--format", "xml"], 2, "error: Invalid value for '--format'"),
        (["--model_def", "m.M", "--data_reader_params", "a=1"], 2, "no meaning with --model_def"),
        (["--model_def", "m.M", "--shuffle"], 2, "--shuffle has no meaning with --model_def"),
        (["--seed", "1"], 2, "--seed is of --shuffle: say that too, or leave it out"),
        (["--model_def", "m.M"], 1, "error: --model_def m.M names the module m, but neither"),
    ],
)
def test_refusals(run, table, flags, code, message):
    found, _, err = run("data", "convert", "a.csv", "out", *flags)
    assert (found, message in err) == (code, True), err


def test_the_formats_are_those_that_can_be_written():
    assert tuple(WRITERS) == data._FORMATS


SLOW = """\
import time


def prepare_data(source):
    for index in range(4):
        if source == "slow" and index == 3:
            open("waits", "w").close()
            time.sleep(600)
        yield {"x": index}
"""


@pytest.mark.parametrize("num_workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_conversion_that_is_ended_goes_on_when_repeated(request, table, number, num_workers):
    (table / "slow.py").write_text(SLOW)
    command = ["data", "convert", "fast", "slow", "out", "--model_def", "slow.Model",
               "--records_per_file", "2", "--num_workers", num_workers]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "elastic", *command], start_new_session=True, stderr=subprocess.PIPE
    )
    # Also when the test fails.
    request.addfinalizer(process.stderr.close)
    request.addfinalizer(process.kill)
    finished = table / "out" / ".unfinished" / "0.json"
    deadline = time.monotonic() + 120
    while not ((table / "waits").exists() and finished.exists()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}[number]
    if number == signal.SIGINT:
        assert b"Traceback" not in err
    while _is_alive(process.pid):
        # Its processes go with it, however it ends.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (table / "out" / "_manifest.json").exists()
    (table / "slow.py").write_text(SLOW.replace("600", "0"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    again = subprocess.run(
        [sys.executable, "-m", "elastic", *command],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "going on: 2 files already there" in again.stderr
    assert again.stdout.startswith("wrote 8 records in 4 files to out\n")


def _is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_plain_progress_is_a_line_now_and_then():
    times = iter([0.0, 0.0, 1.0, 3.0, 3.5])
    out = io.StringIO()
    with PlainCountingDisplay(out, "data", clock=lambda: next(times)) as display:
        for done in (10, 20, 30, 40):
            display.show(ConversionProgress(done, 100, "records", done, done // 10))
    assert out.getvalue() == "data: 30 of 100 records in 3 files, 10s left\n"


def test_live_progress_is_a_bar_with_the_time_left():
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    with LiveCountingDisplay(console) as display:
        display.show(ConversionProgress(1, 4, "sources", 10, 2))
    assert re.search(r"━+.* 1 of 4 sources, 10 records in 2 files .* left", out.getvalue())
