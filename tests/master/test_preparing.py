"""What the user's code may do to the master while it prepares the job."""

import asyncio
import subprocess
import sys
import threading

import pytest

from elastic.errors import ModelDefError, TrainingError
from elastic.master.kinds.preparation import Preparation

PATIENCE_S = 60.0
HANGS_FOR_EVER = """
import asyncio, pathlib, sys, threading
from elastic.errors import TrainingError
from elastic.master.kinds.preparation import Preparation

async def main():
    preparation = Preparation(0.1, pathlib.Path(sys.argv[1]), lambda step: None)
    try:
        await preparation.run(threading.Event().wait)
    except TrainingError:
        print("hung")

asyncio.run(main())
"""


@pytest.fixture
def step_path(tmp_path):
    return tmp_path / "step"


def play(story):
    return asyncio.run(asyncio.wait_for(story, PATIENCE_S))


def test_each_step_is_told_and_kept_until_all_is_prepared(step_path):
    steps = []

    async def story():
        preparation = Preparation(PATIENCE_S, step_path, steps.append)

        def work():
            preparation.at("the import")
            preparation.at("the model")
            return "done"

        result = await preparation.run(work)
        kept = step_path.read_text()
        preparation.end()
        return result, kept

    assert play(story()) == ("done", "the model")
    assert steps == ["the import", "the model"]
    assert not step_path.exists()


def test_what_hangs_is_named_with_its_line_and_says_nothing_any_more(step_path):
    steps, released = [], threading.Event()

    async def story():
        preparation = Preparation(1.0, step_path, steps.append)

        def dataset_fn():
            preparation.at("dataset_fn of mine")
            released.wait()
            preparation.at("the model")

        with pytest.raises(TrainingError) as caught:
            await preparation.run(dataset_fn)
        preparation.end()
        released.set()
        # Comes in behind what the thread may have put into the queue.
        [thread] = [t for t in threading.enumerate() if t.name == "preparation"]
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0)
        return caught.value, dataset_fn.__code__

    error, code = play(story())
    assert error.reason == "PreparationTimeout"
    assert str(error) == (
        f"{code.co_qualname} ({__file__}:{code.co_firstlineno + 2}) hangs while the master "
        "prepares the job (dataset_fn of mine): that took longer than start_timeout=1 s: mend it, "
        "or raise --start_timeout"
    )
    assert steps == ["dataset_fn of mine"]


def test_all_pieces_of_work_share_one_time_limit(step_path):
    async def story():
        preparation = Preparation(0.2, step_path, lambda _: None)
        await preparation.run(lambda: None)
        await asyncio.sleep(0.3)
        # It would take less than the limit, had that begun anew.
        with pytest.raises(TrainingError, match="took longer than start_timeout"):
            await preparation.run(lambda: threading.Event().wait(0.1))

    play(story())


def test_code_that_ends_the_process_is_the_users_error(step_path):
    def work():
        raise SystemExit("bye")

    async def story():
        await Preparation(PATIENCE_S, step_path, lambda _: None).run(work)

    line = work.__code__.co_firstlineno + 1
    with pytest.raises(ModelDefError) as caught:
        play(story())
    assert str(caught.value) == (
        f"the user's code ended the process: SystemExit: bye ({__file__}:{line})"
    )


def test_a_thread_that_hangs_does_not_keep_the_process(step_path):
    command = [sys.executable, "-c", HANGS_FOR_EVER, str(step_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "hung\n"
