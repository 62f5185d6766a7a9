import io
import time

import pytest
from rich.console import Console
from support.statuses import KILLED, SUBMITTED_S, failed, running, succeeded

from elastic.spec.status import EvaluationProgress, JobPhase, JobStatus, Progress
from elastic.telemetry.progress import (
    LiveDisplay,
    PlainDisplay,
    epochs_done_text,
    open_display,
    progress_view,
)
from elastic.telemetry.summary import (
    duration_text,
    event_line,
    percent_text,
    progress_line,
    summary_lines,
)


@pytest.fixture(autouse=True)
def utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def plain(*steps, since_s=0.0):
    """What a plain display prints for (seconds, status) pairs."""
    stream, clock = io.StringIO(), Clock()
    with PlainDisplay(stream, since_s, clock, lambda: SUBMITTED_S + 72) as display:
        for seconds, status in steps:
            clock.now_s = 100.0 + seconds
            display.show(status)
    return stream.getvalue().splitlines()


LINE = (
    "Running     50%, 1438/2876 records, epoch 1 of 2, 80 samples/s, loss 0.3123, 2/2 workers, "
    "ETA 17s"
)


def test_a_line_tells_how_far_the_job_is():
    assert progress_line(running()) == LINE


def test_the_loss_is_the_newest_minibatch_where_a_master_tells_no_mean():
    progress = running().progress.model_copy(update={"mean_loss": None})
    assert "loss 0.2," in progress_line(running(progress=progress))


def test_a_job_that_waits_says_why():
    status = JobStatus(
        job_name="mnist", phase=JobPhase.STARTING, reason="NoWorkers", message="first\nsecond",
        desired_workers=2,
    )  # fmt: skip
    assert progress_line(status) == "Starting      -, 0/2 workers, NoWorkers: first"


def test_an_unchanged_job_is_said_once():
    assert plain((0, running()), (3, running()), (6, running())) == [LINE]


def test_lines_come_at_most_every_two_seconds():
    lines = plain(*((i * 0.5, running(1000 + i)) for i in range(9)))
    assert [line.split(", ")[1] for line in lines] == [
        "1000/2876 records", "1004/2876 records", "1008/2876 records",
    ]  # fmt: skip


PULLING = JobStatus(job_name="mnist", message="the master is being started")
STUCK = PULLING.model_copy(
    update={"reason": "ErrImagePull", "message": "image walk/nosuch:1 cannot be used: not found"}
)


def test_why_a_job_stands_still_is_said_at_once():
    assert plain((0, PULLING), (0.5, STUCK), (1, STUCK)) == [
        "Pending       -, 0/0 workers, the master is being started",
        "Pending       -, 0/0 workers, ErrImagePull: image walk/nosuch:1 cannot be used: not found",
    ]


def test_another_phase_is_said_at_once():
    recovering = running(phase=JobPhase.RECOVERING)
    lines = plain((0, running()), (0.1, recovering), (0.2, running()))
    assert [line.split()[0] for line in lines] == ["Running", "Recovering", "Running"]


def test_the_last_progress_before_a_standstill_is_said_when_its_time_has_come():
    lines = plain((0, running(1000)), *((i * 0.5, running(1500)) for i in range(1, 7)))
    assert [line.split(", ")[1] for line in lines] == ["1000/2876 records", "1500/2876 records"]


def test_every_event_is_said_once_and_at_once():
    lost = running(events=(KILLED,))
    assert plain((0, running()), (0.1, lost), (0.2, lost)) == [LINE, event_line(KILLED)]
    assert event_line(KILLED) == "22:13:50 worker-1 was killed (signal 9), started again"


def test_events_of_an_earlier_life_are_not_told():
    lost = running(events=(KILLED,))
    assert plain((0, lost), since_s=KILLED.time_s + 1) == [LINE]
    assert plain((0, lost), since_s=KILLED.time_s) == [event_line(KILLED), LINE]


SUMMARY = [
    "job mnist: Succeeded after 1m 23s",
    "2876 of 2876 records, 143 updates, 24 records computed again",
    "epoch 0: 1438 records, all counted once",
    "epoch 1: 1438 records = 1437 committed + 1 skipped",
    "training: loss 0.3123, 52 samples/s, 27s in epoch 1",
    "evaluation: loss 0.25, accuracy 0.9712",
    "checkpoint: /ckpt/000286",
    "export: /out/model.safetensors",
    "time: queue 2.0s (2%), start 3.0s (4%), train 1m 10s (84%), evaluate 8.0s (10%)",
    "1 worker lost, 0 worker crashes, 0 master restarts",
]


def test_the_end_is_a_summary_however_soon_it_comes():
    assert plain((0, running()), (0.1, succeeded())) == [LINE, event_line(KILLED), *SUMMARY]


def test_a_checkpoint_that_is_not_where_it_should_be_says_why():
    problem = {"checkpoint_problem": "NOT in /full: No space left on device"}
    status = succeeded().model_copy(update=problem)
    assert plain((0, status))[-4] == (
        "checkpoint: /ckpt/000286, NOT in /full: No space left on device"
    )


def test_a_failure_is_told_whole():
    assert plain((0, failed())) == [
        "job mnist: Failed after 1m 23s",
        "WorkerFailed: worker-0 failed: ValueError: bad label",
        '  File "mnist.py", line 3, in loss',
        "1438 of 2876 records, 143 updates, 24 records computed again",
        "0 workers lost, 11 worker crashes, 0 master restarts",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0s"), (4.25, "4.2s"), (59.9, "59s"), (72, "1m 12s"), (7380, "2h 03m"),
     (273_600, "3d 4h")],
)  # fmt: skip
def test_durations_are_short(seconds, text):
    assert duration_text(seconds) == text


def test_nearly_done_is_not_done():
    progress = Progress(records_done=9999, records_total=10000)
    assert percent_text(running(progress=progress)) == "99%"


def test_percents_are_exact():
    def shown(**progress):
        return percent_text(running(progress=Progress(**progress)))

    percents = [f"{done}%" for done in range(101)]
    assert [shown(records_done=done, records_total=100) for done in range(101)] == percents
    in_steps = {"records_total": 9999, "max_steps": 100}
    assert [
        shown(records_done=7 * done, model_version=done, **in_steps) for done in range(101)
    ] == percents


@pytest.mark.parametrize("steps", [3, 49, 143, 10**6])
def test_all_steps_but_one_are_not_all(steps):
    progress = Progress(
        records_done=7 * (steps - 1), records_total=10**9, model_version=steps - 1, max_steps=steps
    )
    shown = percent_text(running(progress=progress))
    assert shown == f"{100 * (steps - 1) // steps}%" != "100%"


def recorded(width, **options):
    return Console(
        file=io.StringIO(), width=width, force_terminal=True, legacy_windows=False, **options
    )


@pytest.mark.parametrize("width", [80, 160])
def test_the_view_fits_its_terminal(width):
    console = recorded(width, color_system=None)
    console.print(progress_view(running(), SUBMITTED_S + 72))
    head, bar, speed = console.file.getvalue().splitlines()
    assert head.rstrip().startswith("mnist Running")
    assert head.rstrip().endswith("1m 12s")
    assert bar.rstrip().endswith(" 1438/2876 50% ETA 17s")
    assert bar.count("━") == (width - len(" 1438/2876 50% ETA 17s")) // 2
    assert speed.rstrip() == ("epoch 1 of 2  80 samples/s  loss 0.3123  2/2 workers  version 143")
    assert max(map(len, (head, bar, speed))) <= width


def viewed(status, width):
    console = recorded(width, color_system=None)
    console.print(progress_view(status, SUBMITTED_S + 72))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize("width", [80, 160])
def test_why_a_job_waits_is_told_whole_below_the_bar(width):
    message = f"image 127.0.0.1:5000/walk/nosuch:1 cannot be used: {'not found ' * 25}: push it"
    status = running(phase=JobPhase.PENDING, reason="ErrImagePull", message=message)
    head, _bar, _speed, *why = viewed(status, width)
    assert head.split() == ["mnist", "Pending", "1m", "12s"]
    assert " ".join(why) == f"ErrImagePull: {message}"


def test_a_traceback_takes_a_few_lines_of_the_view():
    message = "\n".join(f"line {i}" for i in range(50))
    lines = viewed(running(phase=JobPhase.RECOVERING, reason="MasterLost", message=message), 80)
    assert lines[3:] == ["MasterLost: line 0", *(f"line {i}" for i in range(1, 6)), "…"]


def test_what_a_running_job_does_fits_beside_its_phase():
    head, *rest = viewed(running(reason="Evaluating", message="x" * 200), 80)
    assert head.startswith("mnist Running  Evaluating: xxx")
    assert "…" in head
    assert head.endswith("1m 12s")
    assert len(rest) == 2


@pytest.mark.parametrize("width", [80, 160])
def test_the_live_view_leaves_events_and_summary(width):
    console = recorded(width, color_system=None)
    with LiveDisplay(console, wall_clock=lambda: SUBMITTED_S + 72) as display:
        display.show(running())
        display.show(running(events=(KILLED,)))
        display.show(succeeded())
    shown = console.file.getvalue()
    assert shown.count(event_line(KILLED)) == 1
    assert shown.rstrip().endswith("\n".join(SUMMARY))


def test_no_view_is_older_than_the_events_above_it():
    starting = running(0, phase=JobPhase.STARTING)
    for step in (running(events=(KILLED,)), succeeded()):
        console = recorded(80)
        with LiveDisplay(console, wall_clock=lambda: SUBMITTED_S + 72) as display:
            display.show(starting)
            before = len(console.file.getvalue())
            display.show(step)
        told = console.file.getvalue()[before:]
        assert event_line(KILLED) in told
        assert "Starting" not in told


def test_the_evaluation_of_the_trained_model_has_no_eta():
    status = running(2876, reason="Evaluating")
    assert "100%" in progress_line(status)
    assert "ETA" not in progress_line(status)


def test_an_evaluation_has_an_eta_of_its_own():
    told = EvaluationProgress(
        model_version=286, records_done=90, records_total=180, samples_per_s=10.0
    )
    status = running(2876, reason="Evaluating", evaluation=told)
    assert "evaluates version 286, 90/180 records, ETA 9.0s" in progress_line(status)
    assert "evaluates version 286, 90/180 records, ETA 9.0s" in viewed(status, 160)[2]


def test_markup_in_a_message_is_only_text():
    console = recorded(80, color_system=None)
    with LiveDisplay(console) as display:
        display.show(failed().model_copy(update={"message": "[red]x[/red] [/nope]"}))
    assert "[red]x[/red] [/nope]" in console.file.getvalue()


def test_a_pipe_gets_plain_lines():
    assert isinstance(open_display(io.StringIO()), PlainDisplay)


def test_no_color_is_honoured(monkeypatch):
    def styled():
        console = recorded(80, color_system="standard")
        console.print(progress_view(running(), SUBMITTED_S + 72))
        return "\x1b[32mRunning" in console.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled()
    monkeypatch.setenv("NO_COLOR", "1")
    assert not styled()


def test_a_job_of_so_many_steps_is_measured_by_them():
    """143 of 200 steps took 1438 of 2876 records, so that the last will take some 2011."""
    progress = running().progress.model_copy(update={"max_steps": 200})
    status = running(progress=progress)
    assert progress_line(status) == (
        "Running     71%, 1438/2876 records, epoch 1 of 2, 143/200 steps, 80 samples/s, "
        "loss 0.3123, 2/2 workers, ETA 7.2s"
    )
    console = recorded(80)
    console.print(progress_view(status, SUBMITTED_S))
    assert "143/200 steps 71% ETA 7.2s" in console.file.getvalue()


def test_at_its_last_step_nothing_is_left():
    done = running().progress.model_copy(update={"max_steps": 143})
    status = running(progress=done, phase=JobPhase.SUCCEEDED, ended_s=SUBMITTED_S + 83)
    assert (percent_text(status), epochs_done_text(status)) == ("100%", "1 of 2")


def test_more_steps_than_the_epochs_have_change_nothing():
    """No record is left after 143 updates, although there could be 900."""
    progress = running(2876).progress.model_copy(update={"max_steps": 900})
    status = running(progress=progress, phase=JobPhase.SUCCEEDED, ended_s=SUBMITTED_S + 83)
    assert (percent_text(status), epochs_done_text(status)) == ("100%", "2 of 2")
    assert "steps" not in progress_line(status)


def test_minibatches_that_failed_are_in_the_summary():
    """A job in which none did has no word of it."""
    told = succeeded().progress.model_copy(
        update={
            "minibatches_tried_again": 3,
            "records_computed_alone": 1,
            "shrunk_minibatch_size": 8,
        }
    )
    line = "3 minibatches tried again, 1 record computed alone, minibatches shrunk to 8 records"
    assert line in summary_lines(succeeded().model_copy(update={"progress": told}), SUBMITTED_S)
    assert not any("minibatch" in each for each in summary_lines(succeeded(), SUBMITTED_S))
