import io

import pytest
from rich.console import Console
from support.statuses import KILLED, SUBMITTED_S, failed, running, succeeded

from elastic.spec.status import (
    BatchStatus,
    EvaluationProgress,
    JobEvent,
    JobPhase,
    ScalingStatus,
    TableStatus,
    WorkerStatus,
)
from elastic.telemetry.screens import job_screen, jobs_table
from elastic.telemetry.summary import event_line, progress_line


def drawn(renderable, width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize("width", [80, 160])
def test_all_jobs_in_a_table(width):
    lines = drawn(jobs_table([running(), succeeded(), failed()], SUBMITTED_S + 200), width)
    assert [line.split() for line in lines] == [
        ["JOB", "PHASE", "PROGRESS", "WORKERS", "EPOCH", "LOSS", "SAMPLES/S", "AGE"],
        ["mnist", "Running", "50%", "2/2", "1", "of", "2", "0.3123", "80", "3m", "20s"],
        ["mnist", "Succeeded", "100%", "0/2", "2", "of", "2", "0.3123", "-", "3m", "20s"],
        ["mnist", "Failed", "50%", "0/2", "1", "of", "2", "0.3123", "-", "3m", "20s"],
    ]


@pytest.mark.parametrize(("width", "has_bar"), [(80, False), (160, True)])
def test_a_terminal_with_room_shows_a_bar(width, has_bar):
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=True)
    console.print(jobs_table([running()], SUBMITTED_S + 200))
    assert ("━" in console.file.getvalue()) is has_bar
    assert "50%" in console.file.getvalue()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_one_job_has_a_bar_on_a_terminal_alone(is_terminal):
    console = Console(file=io.StringIO(), width=80, color_system=None, force_terminal=is_terminal)
    console.print(job_screen(running(), SUBMITTED_S + 200))
    assert ("━" in console.file.getvalue()) is is_terminal
    assert "1438/2876 50% ETA 17s" in console.file.getvalue()


def test_one_job_tells_the_batch_that_its_master_chooses():
    batch = BatchStatus(records=128, minimum=32, maximum=256, noise_scale=1234.5)
    status = running(scaling=ScalingStatus(batch=batch))
    lines = drawn(job_screen(status, SUBMITTED_S + 200), 80)
    assert "batch      128 records, of 32 to 256, noise scale 1,234" in lines
    assert not any(line.startswith("batch") for line in drawn(job_screen(running(), 0.0), 80))


def test_a_long_name_is_folded_and_not_cut():
    name = "a-job-whose-name-has-the-forty-char-limit"[:40]
    lines = drawn(jobs_table([running(job_name=name)], SUBMITTED_S + 200), 80)
    assert "".join(line.split("  ")[0].strip() for line in lines[1:]) == name


def test_a_usual_name_stays_whole_where_numbers_are_long():
    long_progress = running().progress.model_copy(
        update={"epoch": 99_998, "num_epochs": 100_000, "loss": 1.234e-05}
    )
    statuses = [
        running(job_name="model-oezy-2", progress=long_progress),
        running(job_name="digits"),
    ]
    lines = drawn(jobs_table(statuses, SUBMITTED_S + 200_000), 80)
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "JOB",
        "model-oezy-2",
        "digits",
    ]


def test_no_jobs_is_said():
    assert drawn(jobs_table([], 0.0), 80) == ["no jobs"]


@pytest.mark.parametrize("width", [80, 160])
def test_one_job_in_depth(width):
    text = "\n".join(drawn(job_screen(succeeded(), SUBMITTED_S + 200), width))
    for part in (
        "mnist  Succeeded",
        "2876/2876",
        "100%",
        "1m 23s",
        "epoch 1: 1438 records = 1437 committed + 1 skipped",
        "24 computed again, 0 skipped, 0 gradients refused",
        "train 1m 10s (84%)",
        "1 worker lost",
        "accuracy 0.9712",
        "/ckpt/000286",
        "/out/model.safetensors",
        event_line(KILLED),
    ):
        assert part in text


def test_lost_servers_are_counted_and_told_among_the_recoveries():
    kinds = ("ServerLost", "ServerHung", "RedisFailed", "ParametersLost")
    events = tuple(JobEvent(time_s=SUBMITTED_S, kind=kind, message=kind) for kind in kinds)
    status = running(servers_lost=2, redis_lost=1, events=events)
    lines = drawn(job_screen(status, SUBMITTED_S), 200)
    [losses] = [line for line in lines if line.startswith("losses")]
    assert losses.endswith(", 0 master restarts, 2 parameter servers lost, 1 Redis lost")
    assert [line.split()[-1] for line in lines[lines.index("RECOVERIES") + 1 :]] == list(kinds)


def test_finished_epochs_with_their_mean_loss():
    lines = drawn(job_screen(succeeded(), SUBMITTED_S + 200), 80)
    at = lines.index(next(line for line in lines if line.split()[:2] == ["EPOCH", "LOSS"]))
    assert [line.split() for line in lines[at : at + 3]] == [
        ["EPOCH", "LOSS", "SAMPLES/S", "TIME"],
        ["0", "0.8", "34", "42s"],
        ["1", "0.3123", "52", "27s"],
    ]


def test_training_metrics_have_columns_of_their_own():
    first, second = succeeded().epochs
    epochs = (first, second.model_copy(update={"metrics": {"accuracy": 0.97}}))
    lines = drawn(job_screen(running(epochs=epochs), SUBMITTED_S + 200), 80)
    at = lines.index(next(line for line in lines if line.split()[:2] == ["EPOCH", "LOSS"]))
    assert [line.split() for line in lines[at : at + 3]] == [
        ["EPOCH", "LOSS", "ACCURACY", "SAMPLES/S", "TIME"],
        ["0", "0.8", "-", "34", "42s"],
        ["1", "0.3123", "0.97", "52", "27s"],
    ]


@pytest.mark.parametrize("width", [80, 160])
def test_workers_of_a_job_with_their_last_exit(width):
    lines = drawn(job_screen(running(), SUBMITTED_S + 200), width)
    assert [line.split() for line in lines[-3:]] == [
        ["WORKER", "PHASE", "LAUNCH", "PID", "RECORDS", "SAMPLES/S", "LAST", "EXIT"],
        ["worker-0", "Running", "1", "11", "719", "0"],
        ["worker-1", "Running", "2", "12", "0", "40", "killed", "(signal", "9)"],
    ]


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (JobPhase.SUCCEEDED, "Succeeded"),
        (JobPhase.RUNNING, "Succeeded"),
        (JobPhase.FAILED, "Ended"),
        (JobPhase.CANCELLED, "Ended"),
    ],
)
def test_no_worker_of_a_job_that_failed_has_succeeded(phase, shown):
    worker = WorkerStatus(index=0, launch=1, phase="Succeeded", last_exit="ended")
    lines = drawn(job_screen(running(workers=(worker,), phase=phase), SUBMITTED_S), 80)
    [row] = [line.split() for line in lines if line.startswith("worker-0")]
    assert row[1] == shown


def test_a_worker_that_waits_says_why():
    why = "0/3 nodes are available: 3 Insufficient cpu"
    waiting = WorkerStatus(index=2, launch=1, phase="Pending", message=why)
    lines = drawn(job_screen(running(workers=(*running().workers, waiting)), SUBMITTED_S), 200)
    assert any("LAST EXIT" in line and line.endswith("WAITS BECAUSE") for line in lines)
    assert any(line.startswith("worker-2") and line.endswith(why) for line in lines)


def test_a_finished_job_is_not_in_its_last_epoch_and_says_its_phase_once():
    status = succeeded().model_copy(
        update={"reason": "Succeeded", "message": "every record has counted"}
    )
    lines = drawn(job_screen(status, SUBMITTED_S + 200), 80)
    assert lines[0] == "mnist  Succeeded  every record has counted"
    assert [line.split() for line in lines if line.startswith("epoch  ")] == [
        ["epoch", "2", "of", "2"]
    ]


def test_what_was_lost_stands_apart_from_the_ends_of_epochs():
    epochs = [
        JobEvent(time_s=SUBMITTED_S + 40 + i, kind="EpochEnded", message=f"epoch {i}")
        for i in range(20)
    ]
    cut = JobEvent(time_s=SUBMITTED_S + 99, kind="Resumed", message="resumed from version 7")
    lines = drawn(job_screen(running(events=(KILLED, *epochs, cut)), SUBMITTED_S + 200), 80)
    assert lines[-5:] == ["RECOVERIES", event_line(KILLED), "", "EVENTS", event_line(cut)]


def test_an_evaluation_tells_how_far_it_is():
    told = EvaluationProgress(
        model_version=143, records_done=20, records_total=180, samples_per_s=40.0
    )
    lines = drawn(job_screen(running(evaluation=told), SUBMITTED_S + 200), 80)
    assert "evaluates  version 143, 20/180 records, ETA 4.0s" in lines
    assert "evaluates version 143, 20/180 records, ETA 4.0s" in progress_line(
        running(evaluation=told)
    )


def test_tables_of_embeddings_tell_their_size():
    status = running(
        tables=(
            TableStatus(name="items", dim=16, rows=20_480, size_bytes=4_096_000),
            TableStatus(name="users", dim=8, rows=0, size_bytes=0, candidates=7, evicted=1),
        )
    )
    lines = drawn(job_screen(status, SUBMITTED_S + 200), 90)
    place = next(i for i, line in enumerate(lines) if line.split()[:1] == ["tables"])
    told = [" ".join(line.split()) for line in lines[place : place + 2]]
    assert told == [
        "tables items: 20,480 rows of 16, 4.1 MB, 200 bytes a row",
        "users: 0 rows of 8, 0.0 MB, 7 ids not admitted yet, 1 rows evicted",
    ]


def test_a_failed_job_shows_its_whole_message():
    lines = drawn(job_screen(failed(), SUBMITTED_S + 200), 80)
    assert lines[:2] == [
        "mnist  Failed  WorkerFailed: worker-0 failed: ValueError: bad label",
        '    File "mnist.py", line 3, in loss',
    ]


def test_minibatches_that_failed_are_told():
    told = running().progress.model_copy(update={"minibatches_tried_again": 1})
    lines = drawn(job_screen(running(progress=told), SUBMITTED_S + 72), 80)
    assert ["failing", "1", "minibatch", "tried", "again"] in [line.split() for line in lines]
    assert not any("failing" in line for line in drawn(job_screen(running(), SUBMITTED_S), 80))
