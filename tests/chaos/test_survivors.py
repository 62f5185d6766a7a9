"""While one of three workers is killed and replaced, the others go on."""

from itertools import pairwise
from pathlib import Path

from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec

STEP_S = 1.0
"""Far above what a loaded machine needs for the calls between two steps."""
STEPS_BEFORE = 3
STEPS_AFTER = 2


def steps_of(folder, pid):
    path = folder / str(pid)
    if not path.exists():
        return []
    return [tuple(map(float, line.split())) for line in path.read_text().splitlines()]


def test_survivors_show_no_gap_longer_than_a_minibatch(tmp_path):
    folder = tmp_path / "steps"
    folder.mkdir()
    spec = make_spec(
        "timed.CustomModel",
        prepared_dir("counting", num_records=1000) / "train.npz",
        model_zoo=str(Path(__file__).parent / "zoo"),
        model_params={"folder": str(folder), "step_s": STEP_S},
        num_workers=3,
        num_epochs=100,
        use_async=True,
    )
    with LocalJob(spec, tmp_path) as job:
        job.wait_until(
            lambda status: (
                len(job.pids("worker")) == 3
                and all(
                    len(steps_of(folder, pid)) >= STEPS_BEFORE
                    for pid in job.pids("worker").values()
                )
            )
        )
        before = job.pids("worker")
        job.kill_one("worker", 1)

        def is_replaced(_status):
            pid = job.pids("worker").get(1)
            return pid not in (None, before[1]) and len(steps_of(folder, pid)) >= STEPS_AFTER

        job.wait_until(is_replaced)
    for index in (0, 2):
        steps = steps_of(folder, before[index])
        gaps = [begin - end for (_, end), (begin, _) in pairwise(steps)]
        assert max(gaps[1:]) < STEP_S, f"worker-{index} stood still for {max(gaps):.2f} s"
