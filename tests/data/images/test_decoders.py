"""Images decoded by processes beside the reader: the same images, whoever dies."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.images import ImageDecoders
from elastic.errors import DataError

NUM_IMAGES = 60


@pytest.fixture
def photos(tmp_path):
    """Images of several sizes, each of one colour of its own."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(NUM_IMAGES):
        pixels = np.full((5 + index % 7, 300, 3), index, np.uint8)
        Image.fromarray(pixels).save(folder / f"{index:02}.png")
    return folder


def paths_of(folder):
    return [str(path) for path in sorted(folder.iterdir())]


def values(images):
    return [int(image[0, 0, 0]) for image in images]


def open_beside(origin, num_processes=1, **params):
    params = {"processes": num_processes, **params}
    return open_reader(str(origin), 20, params, None, beside=True)


@pytest.mark.parametrize("num_processes", [1, 2, 3])
@pytest.mark.parametrize("params", [{}, {"mode": "L"}, {"size": 32}], ids=["rgb", "grey", "size"])
def test_images_are_those_that_the_reader_itself_decodes(photos, num_processes, params):
    here = open_reader(str(photos), 20, params, None)
    (shard,) = here.create_shards()
    beside = open_beside(photos, num_processes, **params)
    for start, end in ((0, NUM_IMAGES), (0, 1), (17, 40)):
        task = ReadTask(shard, start, end)
        for mine, theirs in zip(here.read_records(task), beside.read_records(task), strict=True):
            assert mine["path"] == theirs["path"]
            assert mine["image"].dtype == theirs["image"].dtype
            np.testing.assert_array_equal(mine["image"], theirs["image"])
            theirs["image"][:] = 0  # belongs to the caller


def test_only_who_computes_meanwhile_has_processes(photos):
    def children_after_reading(reader):
        (shard,) = reader.create_shards()
        list(reader.read_records(ReadTask(shard, 0, 3)))
        return len(psutil.Process().children())

    before = len(psutil.Process().children())
    assert children_after_reading(open_reader(str(photos), 20, {}, None)) == before
    assert children_after_reading(open_beside(photos, num_processes=0)) == before
    two = open_beside(photos, num_processes=2)
    assert children_after_reading(two) == before + 2
    del two
    assert len(psutil.Process().children()) == before


def test_a_damaged_image_is_an_error_of_its_record_alone(photos):
    (photos / "13.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    (photos / "14.png").unlink()
    decoders = ImageDecoders("RGB", None, 2)
    paths = [*paths_of(photos)[:14], str(photos / "14.png"), *paths_of(photos)[14:]]
    images = decoders.read(paths)
    assert values(islice(images, 13)) == list(range(13))
    with pytest.raises(DataError, match=r"13\.png cannot be read as an image .*: it is damaged"):
        next(images)
    with pytest.raises(DataError, match=r"14\.png cannot be read \(No such file"):
        next(decoders.read(paths[14:]))
    assert values(decoders.read(paths[15:])) == list(range(15, NUM_IMAGES))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_sequences_taken_in_turns_and_given_up(photos, num_processes):
    decoders = ImageDecoders("RGB", None, num_processes)
    paths = paths_of(photos)
    given_up = [decoders.read(paths) for _ in range(20)]
    for images in given_up:
        assert values(islice(images, 1)) == [0]
    one, other = decoders.read(paths), decoders.read(paths[::-1])
    for index in range(NUM_IMAGES):
        assert values([next(one), next(other)]) == [index, NUM_IMAGES - 1 - index]


@pytest.mark.parametrize("num_processes", [1, 3])
def test_processes_killed_at_random_moments_lose_no_image(photos, num_processes):
    rng = random.Random(0)
    decoders = ImageDecoders("RGB", None, num_processes)
    paths = paths_of(photos) * 20
    killed = 0
    for index, image in enumerate(decoders.read(paths)):
        assert values([image]) == [index % NUM_IMAGES]
        if rng.random() < 0.02:
            os.kill(rng.choice(decoders.pids), signal.SIGKILL)
            killed += 1
    assert killed > 10


class Killer:
    """Kills each process of some decoders as soon as it exists, or as it has the image in hand."""

    def __init__(self, decoders, is_victim):
        self._decoders = decoders
        self._is_victim = is_victim
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.001):
            for pid in self._decoders.pids:
                if self._is_victim(pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


def reads(path):
    """Whether a process has a file open."""

    def is_victim(pid):
        try:
            return any(file.path == str(path) for file in psutil.Process(pid).open_files())
        except psutil.Error:
            return False

    return is_victim


def test_an_image_that_processes_die_of_is_an_error_of_its_record(photos, caplog):
    # So large that decoding it takes a while, in which its process is killed.
    Image.fromarray(np.zeros((7000, 7000, 3), np.uint8)).save(photos / "13.png", compress_level=1)
    decoders = ImageDecoders("RGB", (300, 300), 1)
    paths = paths_of(photos)
    images = decoders.read(paths)
    assert values(islice(images, 13)) == list(range(13))
    with (
        Killer(decoders, reads(photos / "13.png")),
        pytest.raises(
            DataError, match=r"13\.png cannot be decoded: .* was ended by SIGKILL, 3 times"
        ),
    ):
        next(images)
    # Once among others, which tells nothing of it.
    assert caplog.text.count("was ended by SIGKILL, at ") == 4
    assert values(decoders.read(paths[14:])) == list(range(14, NUM_IMAGES))


def test_processes_that_do_not_start_are_an_error_of_the_reader(photos, caplog):
    decoders = ImageDecoders("RGB", None, 1)
    paths = paths_of(photos)
    with (
        Killer(decoders, lambda _: True),
        pytest.raises(DataError, match=r"00\.png cannot .* by SIGKILL as it started, 10 times in"),
    ):
        list(decoders.read(paths))
    assert caplog.text.count("SIGKILL as it started") == 10
    assert values(decoders.read(paths)) == list(range(NUM_IMAGES))


@contextlib.contextmanager
def no_more_files():
    """Let this process open nothing, a connection to a new process included."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open() as lowest_free:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free.fileno() + 1, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("num_processes", [1, 3])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["first", "replaced"])
def test_where_no_process_can_be_started_the_error_says_so(photos, num_processes, is_replaced):
    decoders = ImageDecoders("RGB", None, num_processes)
    paths = paths_of(photos)
    if is_replaced:
        list(decoders.read(paths))
        for pid in decoders.pids:
            os.kill(pid, signal.SIGKILL)
    with (
        no_more_files(),
        pytest.raises(DataError, match=r"00\.png cannot .* be started \(Too many open files\)"),
    ):
        list(decoders.read(paths))
    assert values(decoders.read(paths)) == list(range(NUM_IMAGES))


def test_a_process_does_not_outlive_its_reader(photos):
    program = (
        "import os, sys, signal\n"
        "from elastic.data.images import ImageDecoders\n"
        "decoders = ImageDecoders('RGB', None, 2)\n"
        "next(decoders.read(sys.argv[1:]))\n"
        "print(*decoders.pids, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *paths_of(photos)], stdout=subprocess.PIPE, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len(pids) == 2
    deadline = time.monotonic() + 30
    while any(map(psutil.pid_exists, pids)):
        assert time.monotonic() < deadline, "a decoder outlives who asked it"
        time.sleep(0.01)
