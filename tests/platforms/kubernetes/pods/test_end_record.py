"""An end that its master's pod tells where the ConfigMap did not take it."""

import json

import pytest
from support.pods import pod, terminated

from elastic.platforms.kubernetes.masters import MAX_BYTES, dump_end, end_of, reduced
from elastic.spec.status import EpochAudit, JobEvent, JobPhase, JobStatus, Progress, WorkerStatus

EVENT = JobEvent(time_s=1.0, kind="EpochEnded", message="epoch 0")
BEFORE = JobStatus(
    job_name="mnist", phase=JobPhase.RUNNING, submitted_s=3.0, events=(EVENT,), reason="Evaluating"
)
END = JobStatus(
    job_name="mnist",
    phase=JobPhase.SUCCEEDED,
    reason="Succeeded",
    message="every record has counted",
    ended_s=9.0,
    progress=Progress(num_epochs=2, records_done=80, records_total=80, model_version=10),
    audits=(EpochAudit(epoch=0, num_epochs=2, records=40, committed=40, skipped=0),),
    metrics={"accuracy": 0.9},
    checkpoint="/results/000010",
    workers=(WorkerStatus(index=0, launch=1, phase="Running"),),
    events=(EVENT,) * 50,
)


def master(text, code=0):
    return pod(terminated(code, "Succeeded", "Completed", text))


def test_it_comes_back_beside_what_was_published_before():
    told = end_of(master(dump_end(END)), BEFORE)
    # What was not published at the end is as it was; the rest is the end's.
    kept = {"events": (EVENT,), "workers": (), "audits": (), "audits_left_out": 2}
    kept["submitted_s"] = BEFORE.submitted_s
    assert told == END.model_copy(update=kept)


def test_reduced_it_says_how_many_audits_are_left_out():
    assert reduced(END.model_copy(update={"audits_left_out": 5})).audits_left_out == 7


@pytest.mark.parametrize(
    "change",
    [
        {"message": "x" * 100_000},
        {"message": "\N{SNOWMAN}" * 100_000, "export": "/" + "y" * 1000},
        {"checkpoint": "/" + "z" * 10_000},
        {"metrics": {f"metric {i}": 0.25 for i in range(1000)}},
    ],
)
def test_it_fits_whatever_is_in_it(change):
    text = dump_end(END.model_copy(update=change))
    assert len(text.encode()) <= MAX_BYTES
    told = end_of(master(text), BEFORE)
    assert (told.phase, told.reason, told.ended_s) == (JobPhase.SUCCEEDED, "Succeeded", 9.0)
    assert told.progress == END.progress


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Traceback\nValueError: x",
        "[]",
        "{}",
        json.dumps({"reason": "UserError", "message": "no such file"}),
        json.dumps({"job_end": {"phase": "Dreaming"}}),
        dump_end(BEFORE),
    ],
)
def test_other_words_are_no_end(text):
    assert end_of(master(text), BEFORE) is None


def test_a_master_that_runs_has_none():
    assert end_of(pod(), BEFORE) is None
