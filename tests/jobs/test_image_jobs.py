"""A job whose images are decoded beside its workers, while decoders and workers are killed."""

import contextlib
import os
import random
import signal
import time

import numpy as np
import psutil
import pytest
from PIL import Image
from support.local_job import LocalJob
from support.statuses import each_epoch
from support.thread_job import obedient_spec

NUM_IMAGES = 300
NUM_EPOCHS = 3
DECODER = "elastic.data.images"


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(NUM_IMAGES):
        pixels = np.full((8, 8, 3), (*divmod(index, 256), 0), np.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.png")
    return folder


def decoders_of(job, are_ready=False):
    """The decoders of all workers, or those that have been started up: they are nice."""
    found = []
    for process in job.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if DECODER in process.cmdline() and process.nice() >= are_ready:
                found.append(process.pid)
    return found


@pytest.mark.parametrize("num_processes", [1, 2])
def test_every_image_counts_once_whatever_dies(photos, tmp_path, num_processes):
    spec = obedient_spec(
        photos,
        NUM_IMAGES,
        num_epochs=NUM_EPOCHS,
        num_workers="2",
        grads_to_wait=2,
        recovery_interval=0.3,
        data_reader_params={"processes": num_processes},
    ).model_copy(update={"model_def": "obedient_pictures.CustomModel"})
    rng = random.Random(num_processes)
    kills = 0
    with LocalJob(spec, tmp_path) as job:
        job.wait_until(lambda status: status.progress.records_done > 0)
        assert 1 <= len(decoders_of(job)) <= 2 * num_processes
        # The other worker waits for it with its next gradient, and its decoders die meanwhile.
        os.kill(job.pids("worker")[0], signal.SIGKILL)
        while not (status := job.status()).phase.is_final:
            victims = decoders_of(job, are_ready=True)
            if victims:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    kills += 1
            time.sleep(rng.uniform(0.05, 0.4))
        status = job.succeed()
        (counts,) = job.parameters().values()
        assert decoders_of(job) == []
    assert kills >= 2
    assert counts.tolist() == [float(NUM_EPOCHS)] * NUM_IMAGES
    assert each_epoch(status) == [(NUM_IMAGES, NUM_IMAGES, 0)] * NUM_EPOCHS
    assert (status.workers_lost, status.worker_failures) == (1, 0)
