import json
import time

import pytest
import yaml
from cli.test_train_flags import CLASSIC, REQUIRED
from support.scripted_platform import ScriptedPlatform, running_workers
from support.statuses import KILLED, SUBMITTED_S, failed, running, succeeded

from elastic.cli import control
from elastic.cli.exit_codes import ExitCode, of_phase
from elastic.cli.main import SUMMARIES, TOPICS
from elastic.cli.showing import schema_text
from elastic.client.platforms import all_statuses, looks, statuses
from elastic.errors import JobNotFoundError, PlatformError
from elastic.platforms.base import StillAliveError
from elastic.spec.status import JobPhase, JobStatus, TimeCategory, TimeSplit, WorkerStatus
from elastic.spec.values import Since
from elastic.telemetry import progress

LOCAL = (*REQUIRED, "--platform=local")


# -- train


def test_train_follows_the_job_to_its_end(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(), succeeded()))
    code, out, err = run("train", *LOCAL, platform=platform)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "job test has been started"
    assert lines[1].startswith("Running     50%, 1438/2876 records")
    assert lines[2].endswith(KILLED.message)
    assert lines[3] == "job test: Succeeded after 1m 23s"
    assert platform.calls == [("open", "local")]
    assert str(platform.specs["test"].model_zoo) == f"{zoo}/zoo"


@pytest.mark.parametrize(
    ("end", "code"), [(succeeded(), 0), (failed(), 100), (JobPhase.CANCELLED, 103)]
)
def test_the_exit_code_tells_how_the_job_ended(run, zoo, end, code):
    assert run("train", *LOCAL, platform=ScriptedPlatform(on_submit=(end,)))[0] == code


def test_detach_returns_at_once(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(),))
    code, out, _ = run("train", *LOCAL, "--detach", platform=platform)
    assert code == 0
    assert out == ("job test has been started\nsee it with: elastic status test --platform local\n")


def test_a_dry_run_starts_nothing(run, zoo):
    platform = ScriptedPlatform()
    assert run("train", *LOCAL, "--dry_run", platform=platform)[0] == 0
    assert platform.calls == []
    assert platform.jobs() == []


def test_a_name_that_is_taken_is_an_error(run, zoo):
    code, _, err = run("train", *LOCAL, platform=ScriptedPlatform(test=(running(),)))
    assert (code, err) == (1, "error: job test is there already\n")


def test_a_made_up_name_is_printed(run, zoo):
    platform = ScriptedPlatform()
    flags = [flag for flag in LOCAL if not flag.startswith("--job_name")]
    code, out, _ = run("train", *flags, platform=platform)
    (name,) = platform.jobs()
    assert code == 0
    assert out.startswith(f"job {name} has been started\n")
    assert name.startswith("mnist-")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param((), "there is no job 'test'", id="no-job"),
        pytest.param(
            ("--checkpoint_dir=kept",),
            "there is no job 'test', and --checkpoint_dir={zoo}/kept holds no checkpoint",
            id="no-checkpoint",
        ),
    ],
)
def test_nothing_to_resume_is_told_before_the_job_starts(flags, words, run, zoo):
    platform = ScriptedPlatform()
    code, _, err = run("train", *LOCAL, "--resume", *flags, platform=platform)
    assert code == 0
    assert err == (
        f"note: nothing to resume: {words.format(zoo=zoo)}: it starts from the first record\n"
    )


def test_what_there_is_to_resume_is_not_denied(run, zoo):
    (zoo / "kept" / "version-0000000003").mkdir(parents=True)
    flags = ("--resume", f"--checkpoint_dir={zoo}/kept")
    assert run("train", *LOCAL, *flags, platform=ScriptedPlatform())[2] == ""
    known = ScriptedPlatform(test=(succeeded(),))
    assert "note:" not in run("train", *LOCAL, "--resume", platform=known)[2]


def test_a_broken_module_is_told_before_anything_starts(run, zoo):
    (zoo / "zoo" / "mnist.py").write_text("class CustomModel:\n    pass\n")
    platform = ScriptedPlatform()
    code, _, err = run("train", *LOCAL, platform=platform)
    assert code == 1
    assert err.startswith("error: ")
    assert platform.jobs() == []


def test_a_job_that_vanishes_is_not_finished(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(), JobNotFoundError("no job test")))
    code, _, err = run("train", *LOCAL, platform=platform)
    assert code == 101
    assert err == "error: job test can no longer be followed, it may go on: no job test\n"


def test_the_platforms_clock_tells_which_events_are_new(run, zoo):
    """The statuses are years old by this machine's clock."""
    before = KILLED.model_copy(update={"time_s": SUBMITTED_S - 1, "message": "of another life"})
    platform = ScriptedPlatform(on_submit=(running(events=(before, KILLED)), succeeded()))
    out = run("train", *LOCAL, platform=platform)[1]
    assert KILLED.message in out
    assert "of another life" not in out


def test_ages_are_told_by_the_platforms_clock(run):
    split = TimeSplit(train_s=90.0, current=TimeCategory.TRAIN, until_s=SUBMITTED_S + 90)
    platform = ScriptedPlatform(one=(running(time_split=split),))
    platform.clock = lambda: SUBMITTED_S + 100
    for argv in (("status",), ("status", "one")):
        assert "1m 40s" in run(*argv, platform=platform)[1]
    document = json.loads(run("status", "one", "-o", "json", platform=platform)[1])
    assert document["time_split"]["until_s"] == SUBMITTED_S + 100


def test_a_platform_that_does_not_tell_when_it_was_is_followed_all_the_same(run, zoo):
    class Away(ScriptedPlatform):
        def submitted_s(self, job_name):
            raise PlatformError("does not answer")

    platform = Away(on_submit=(running(), succeeded()))
    code, out, err = run("train", *LOCAL, platform=platform)
    assert (code, err) == (0, "")
    assert KILLED.message not in out


def test_ctrl_c_stops_the_job(run, zoo):
    platform = ScriptedPlatform(on_submit=(running(), KeyboardInterrupt(), running()))
    code, _, err = run("train", *LOCAL, platform=platform)
    assert code == 130
    assert ("kill", "test", 30.0) in platform.calls
    assert err == ("\nstopping job test; Ctrl-C again to force it\njob test has been stopped\n")


def test_ctrl_c_leaves_an_older_job_of_the_name_alone(run, zoo):
    class Refusing(ScriptedPlatform):
        def submit(self, spec):
            raise KeyboardInterrupt

    platform = Refusing(test=(running(submitted_s=1.0),))
    code, _, err = run("train", *LOCAL, platform=platform)
    assert (code, err) == (130, "\njob test has not been submitted\n")
    assert [call[0] for call in platform.calls] == ["open"]


def test_a_second_ctrl_c_forces_it(run, zoo):
    class Stubborn(ScriptedPlatform):
        def kill(self, job_name, timeout_s):
            super().kill(job_name, timeout_s)
            if timeout_s:
                raise KeyboardInterrupt

    platform = Stubborn(on_submit=(running(), KeyboardInterrupt(), running()))
    code, _, err = run("train", *LOCAL, platform=platform)
    assert code == 130
    assert platform.calls[1:] == [("kill", "test", 30.0), ("kill", "test", 0.0)]
    assert err.endswith("\nforcing job test to end\njob test has been stopped\n")


# -- following


def script(*steps):
    return ScriptedPlatform(job=steps)


def test_a_short_failure_of_the_platform_passes_by(run):
    seen = list(statuses(script(running(), PlatformError("away"), succeeded()), "job", 0.0))
    assert [status.phase for status in seen] == ["Running", "Succeeded"]


def test_a_job_that_stands_still_is_looked_at_again_and_again():
    steps = (running(), running(), PlatformError("away"), succeeded())
    seen = list(looks(script(*steps), "job", 0.0))
    assert [status.phase for status in seen] == ["Running", "Running", "Running", "Succeeded"]


def test_a_last_change_before_a_standstill_reaches_a_pipe(run, zoo, monkeypatch):
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.1)
    for following in (looks, statuses):
        monkeypatch.setattr(following, "__defaults__", (0.05, 15.0))
    still = [running(1500)] * 10
    _, out, _ = run(
        "train", *LOCAL, platform=ScriptedPlatform(on_submit=(running(), *still, succeeded()))
    )
    assert [line.split(", ")[1] for line in out.splitlines()[1:3]] == [
        "1438/2876 records", "1500/2876 records",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "lost", [PlatformError("away"), running(reason="NoMaster", message="away")]
)
def test_a_lost_job_is_given_up(lost):
    with pytest.raises(PlatformError, match="away"):
        list(statuses(script(running(), lost), "job", 0.0, lost_after_s=0.0))


def test_a_master_that_comes_back_is_followed_on():
    lost = running(reason="NoMaster", message="away")
    seen = list(statuses(script(lost, running(), succeeded()), "job", 0.0, lost_after_s=60.0))
    assert [status.reason for status in seen] == ["NoMaster", "", ""]


def test_a_short_failure_passes_by_whoever_looks_at_all_jobs_too():
    platform = script(running(), PlatformError("away"), running(2000), succeeded())
    views = all_statuses(platform, 0.0)
    done = [status.progress.records_done for _ in range(2) for status in next(views)]
    assert done == [1438, 2000]
    with pytest.raises(PlatformError, match="away"):
        next(all_statuses(script(PlatformError("away"))))


def test_a_job_that_nobody_decides_for_is_not_said_to_go_on(run, zoo, monkeypatch):
    monkeypatch.setattr(looks, "__defaults__", (0.0, 0.0))
    lost = running(reason="NoMaster", message="no process of this job is alive; --resume")
    code, _, err = run("train", *LOCAL, platform=ScriptedPlatform(on_submit=(lost,)))
    assert code == 101
    assert err == (
        "error: job test does not go on by itself: no process of this job is alive; --resume\n"
    )


# -- status


def test_all_jobs_in_a_table(run):
    platform = ScriptedPlatform(one=(running(),), two=(failed(),))
    code, out, _ = run("status", platform=platform)
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["JOB", "PHASE"], ["one", "Running"], ["two", "Failed"],
    ]  # fmt: skip


def test_no_jobs(run):
    assert run("status", platform=ScriptedPlatform())[:2] == (0, "no jobs\n")


def test_a_pipe_gets_whole_lines_however_long_they_are(run):
    path, why = f"/data/{'long/' * 60}version-0000000060", "because " * 60
    workers = tuple(
        WorkerStatus(index=index, launch=2, phase="Running", last_exit=why) for index in range(2)
    )
    status = running(checkpoint=path, workers=workers, message=why)
    _, out, _ = run("status", "one", platform=ScriptedPlatform(one=(status,)))
    lines = out.splitlines()
    assert f"checkpoint  {path}" in lines
    assert sum(line.endswith(why.strip()) for line in lines) == 3


@pytest.mark.parametrize("job", [(), ("one",)])
def test_a_pipe_gets_numbers_without_bars_and_no_spaces_at_the_end_of_lines(run, job):
    platform = ScriptedPlatform(one=(running(),), another=(failed(),))
    code, out, _ = run("status", *job, platform=platform)
    assert code == 0
    assert "━" not in out
    assert [line for line in out.splitlines() if line != line.rstrip()] == []
    if job:
        assert out.splitlines()[1] == "1438/2876 50% ETA 17s"


@pytest.mark.parametrize(
    ("status", "code"),
    [(running(), 0), (succeeded(), 0), (failed(), 100), (running(phase="Cancelled"), 103)],
)
def test_one_job_and_how_it_stands(run, status, code):
    got, out, _ = run("status", "one", platform=ScriptedPlatform(one=(status,)))
    assert got == code
    assert out.startswith(f"one  {status.phase}")


def test_one_job_as_json_and_yaml(run):
    platform = ScriptedPlatform(mnist=(running(),))
    _, as_json, _ = run("status", "mnist", "-o", "json", platform=platform)
    _, as_yaml, _ = run("status", "mnist", "-o", "yaml", platform=platform)
    assert JobStatus.model_validate(json.loads(as_json)) == running()
    assert JobStatus.model_validate(yaml.safe_load(as_yaml)) == running()


def test_a_document_counts_the_time_until_now(run):
    split = TimeSplit(train_s=5, current=TimeCategory.TRAIN, until_s=SUBMITTED_S + 5)
    platform = ScriptedPlatform(one=(running(time_split=split),))
    before_s = time.time()
    told = json.loads(run("status", "one", "-o", "json", platform=platform)[1])["time_split"]
    assert before_s - 0.001 <= told["until_s"] <= time.time() + 0.001
    assert told["train_s"] == pytest.approx(told["until_s"] - SUBMITTED_S, abs=0.001)


def test_the_schema_is_printed_without_a_platform(run):
    assert run("status", "--schema") == (0, schema_text(), "")


def test_a_diverged_loss_is_null_in_json(run):
    platform = ScriptedPlatform(one=(running(metrics={"loss": float("nan")}),))
    _, out, _ = run("status", "one", "-o", "json", platform=platform)
    assert json.loads(out, parse_constant=pytest.fail)["metrics"] == {"loss": None}


def test_all_jobs_as_json(run):
    platform = ScriptedPlatform(a=(running(),), b=(failed(),))
    _, out, _ = run("status", "--output=json", platform=platform)
    assert [item["job_name"] for item in json.loads(out)] == ["a", "b"]


def test_a_watch_ends_with_the_job(run):
    platform = ScriptedPlatform(one=(running(1000), running(2000), failed()))
    code, out, _ = run("status", "one", "--watch", "-o", "json", platform=platform)
    assert code == 100
    assert [json.loads(line)["progress"]["records_done"] for line in out.splitlines()] == [
        1000, 2000, 1438,
    ]  # fmt: skip


def test_a_watch_that_is_lost_is_not_finished(run, monkeypatch):
    monkeypatch.setattr(statuses, "__defaults__", (0.0, 0.0))
    platform = ScriptedPlatform(one=(running(), PlatformError("away")))
    code, _, err = run("status", "one", "-w", platform=platform)
    assert (code, err) == (101, "error: one can no longer be watched: away\n")


def test_so_is_one_of_all_jobs(run, monkeypatch):
    monkeypatch.setattr(all_statuses, "__defaults__", (0.0, 0.0))
    platform = ScriptedPlatform(one=(running(), PlatformError("away")))
    code, _, err = run("status", "-w", platform=platform)
    assert (code, err) == (101, "error: jobs can no longer be watched: away\n")


@pytest.mark.parametrize("command", [("status",), ("logs",), ("kill",), ("scale", "2")])
def test_an_unknown_job_is_said(run, command):
    name, *rest = command
    code, _, err = run(name, "none", *rest, platform=ScriptedPlatform())
    assert (code, err) == (102, "error: no job none: `elastic status` lists them\n")


# -- kill, scale, logs


@pytest.mark.parametrize("command", ["kill", "cancel", "stop"])
def test_kill_waits_and_tells(run, command):
    platform = ScriptedPlatform(one=(running(),))
    code, out, _ = run(command, "one", "--timeout", "5", platform=platform)
    assert (code, out) == (0, "job one has been stopped: Cancelled\n")
    assert ("kill", "one", 5.0) in platform.calls


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(control, "PATIENCE_S", 0.0)


def test_kill_says_what_it_waits_for(run, impatient):
    code, _, err = run("kill", "one", platform=ScriptedPlatform(one=(running(),)))
    assert (code, err) == (0, "job one: waits for worker-0 to end\n")


def test_what_outlives_its_time_is_not_finished(run):
    class Stubborn(ScriptedPlatform):
        def kill(self, job_name, timeout_s, on_wait):
            raise StillAliveError("worker-0 was alive after 30 s")

    code, out, err = run("kill", "one", platform=Stubborn(one=(running(),)))
    assert (code, out, err) == (101, "", "error: worker-0 was alive after 30 s\n")


def test_who_need_not_wait_is_told_nothing(run):
    assert run("kill", "one", platform=ScriptedPlatform(one=(running(),)))[2] == ""


def test_scale_says_what_it_waits_for_each_time_it_is_something_else(run, impatient):
    no_cpu = WorkerStatus(index=2, launch=1, phase="Pending", message="no cpu")
    platform = ScriptedPlatform(
        one=(
            running(),
            running(desired_workers=3, workers=(*running_workers(2), no_cpu)),
            running(desired_workers=3, workers=(*running_workers(2), no_cpu)),
            running(desired_workers=3, workers=running_workers(4)),
            running(desired_workers=3, workers=running_workers(3)),
        )
    )
    code, out, err = run("scale", "one", "3", platform=platform)
    assert (code, out) == (0, "job one: 2 → 3 workers\n")
    assert err == (
        "job one: waits for worker-2 to run: worker-2: no cpu\n"
        "job one: waits for worker-3 to leave\n"
    )


def test_scale_need_not_wait(run):
    platform = ScriptedPlatform(one=(running(), PlatformError("nobody looks again")))
    code, out, err = run("scale", "one", "4", "--no-wait", platform=platform)
    assert (code, out, err) == (0, "job one: has been asked for 4 workers, has 2\n", "")
    assert ("scale", "one", 4) in platform.calls


def test_killing_an_ended_job_says_so(run):
    code, out, _ = run("kill", "one", platform=ScriptedPlatform(one=(succeeded(),)))
    assert (code, out) == (0, "job one had ended before: Succeeded\n")


def test_a_job_whose_status_is_damaged_can_be_killed(run):
    platform = ScriptedPlatform(one=(PlatformError("status.json is damaged"), running()))
    code, out, _ = run("kill", "one", platform=platform)
    assert (code, out) == (0, "job one has been stopped: Cancelled\n")


def test_a_killed_job_can_be_forgotten(run):
    platform = ScriptedPlatform(one=(running(),))
    code, out, _ = run("kill", "one", "--forget", platform=platform)
    assert code == 0
    assert out == "job one has been stopped: Cancelled\nnothing is kept of job one\n"
    assert platform.jobs() == []


@pytest.mark.parametrize("argv", [("4",), ("--num_workers=4",), ("--num-workers", "4")])
def test_scale_waits_for_the_workers(run, argv):
    platform = ScriptedPlatform(
        one=(
            running(),
            running(desired_workers=4),
            running(desired_workers=4, workers=running_workers(4)),
        )
    )
    code, out, _ = run("scale", "one", *argv, platform=platform)
    assert (code, out) == (0, "job one: 2 → 4 workers\n")
    assert ("scale", "one", 4) in platform.calls


def test_scale_says_when_workers_are_missing(run):
    platform = ScriptedPlatform(one=(running(),))
    code, out, _ = run("scale", "one", "3", "--timeout=0", platform=platform)
    assert (code, out) == (
        101, "job one: 2 of 3 workers run so far; see elastic status one\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param(
            running(phase="Pending", reason="Unschedulable", message="it waits\nfor a node"),
            "Unschedulable: it waits",
            id="the-master",
        ),
        pytest.param(
            running(workers=(WorkerStatus(index=1, launch=1, phase="Pending", message="no cpu"),)),
            "worker-1: no cpu",
            id="a-worker",
        ),
    ],
)
def test_scale_says_why_workers_are_missing(run, status, why):
    code, out, _ = run("scale", "one", "3", "--timeout=0", platform=ScriptedPlatform(one=(status,)))
    runs = sum(worker.phase == "Running" for worker in status.workers)
    assert (code, out) == (
        101, f"job one: {runs} of 3 workers run so far: {why}; see elastic status one\n"
    )  # fmt: skip


def test_scale_says_when_the_job_ended_meanwhile(run):
    platform = ScriptedPlatform(one=(running(), succeeded()))
    code, out, _ = run("scale", "one", "3", platform=platform)
    assert (code, out) == (101, "job one ended before it had 3 workers: Succeeded\n")


def test_scale_outside_the_range_is_refused(run):
    code, _, err = run("scale", "one", "9", platform=ScriptedPlatform(one=(running(),)))
    assert (code, err) == (2, "error: 9 workers are outside the range 1:8\n")


@pytest.mark.parametrize("argv", [(), ("2", "--num_workers=2")])
def test_scale_wants_one_number(run, argv):
    code, _, err = run("scale", "one", *argv, platform=ScriptedPlatform(one=(running(),)))
    assert code == 2
    assert err.startswith("error: give the number of workers once: elastic scale JOB N")


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        ((), ((), False, None)),
        (("-f", "--tail", "3"), ((), True, 3)),
        (("--role=worker",), (("worker",), False, None)),
        (("--index=1",), (("worker-1",), False, None)),
        (("--role=master", "--index=0"), (("master-0",), False, None)),
        (("--previous",), ((), False, None, "previous")),
        (("--tail=-1",), ((), False, None)),
        (("--since", "10m"), ((), False, None, Since(600.0, before_now=True))),
        (
            ("--since-time=2026-01-31T12:00:00Z",),
            ((), False, None, Since(1769860800.0, before_now=False)),
        ),
    ],
)
def test_logs_ask_for_the_replicas_meant(run, argv, asked):
    platform = ScriptedPlatform(one=(running(),))
    assert run("logs", "one", *argv, platform=platform)[0] == 0
    assert platform.calls[-1] == ("logs", *asked)


def test_a_past_life_cannot_be_followed(run):
    code, _, err = run("logs", "one", "-f", "-p", platform=ScriptedPlatform(one=(running(),)))
    assert code == 2
    assert err.startswith("error: --follow and --previous exclude each other")


def test_log_lines_begin_with_their_replica(run):
    platform = ScriptedPlatform(one=(running(),))
    platform.log_lines = [("master-0", "ready"), ("worker-1", "[x] step")]
    assert run("logs", "one", platform=platform)[1] == "[master-0] ready\n[worker-1] [x] step\n"


def test_log_lines_may_begin_with_their_time(run):
    platform = ScriptedPlatform(one=(running(),))
    platform.log_lines = [("master-0", "ready", "2026-01-31T12:00:00.123Z"), ("worker-0", "old")]
    out = run("logs", "one", "--timestamps", platform=platform)[1]
    assert out == "[master-0] 2026-01-31T12:00:00.123Z ready\n[worker-0] old\n"


def test_a_time_that_is_none_is_a_usage_error(run):
    code, _, err = run("logs", "one", "--since=soon", platform=ScriptedPlatform(one=(running(),)))
    assert code == 2
    assert "'soon' is neither a duration such as 90s" in err


# -- platforms and errors


def test_without_a_cluster_the_local_platform_is_named(run):
    code, _, err = run("train", *CLASSIC)
    assert code == 1
    assert err == (
        "note: below no --volume, so it goes with its pod: --checkpoint_steps\n"
        "error: no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, "
        "no service account): add --platform local to run on this machine\n"
    )


def test_the_environment_names_the_platform_of_every_command(run, monkeypatch):
    monkeypatch.setenv("ELASTIC_PLATFORM", "local")
    platform = ScriptedPlatform()
    run("status", platform=platform)
    assert platform.calls == [("open", "local")]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("trian",), "error: unknown command trian: did you mean train?\nhelp: elastic --help\n"),
        (("qqq",), "error: unknown command qqq\nhelp: elastic --help\n"),
        (("status", "--wach"),
         "error: unknown flag --wach: did you mean --watch?\nhelp: elastic status --help\n"),
    ],
)  # fmt: skip
def test_a_mistyped_command_or_flag_is_a_usage_error(run, argv, expected):
    assert run(*argv) == (2, "", expected)


def test_a_bug_is_one_line_and_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setenv("ELASTIC_HOME", str(tmp_path))
    code, _, err = run("status", "one", platform=ScriptedPlatform(one=(ZeroDivisionError("oh"),)))
    (report,) = tmp_path.glob("elastic-error-*.log")
    assert code == 1
    assert err == (
        "error: ZeroDivisionError: oh\n"
        f"This is a bug of elastic; please report it with the traceback in {report}\n"
    )
    assert "Traceback (most recent call last)" in report.read_text()


def test_an_interrupt_is_quiet(run):
    code, _, err = run("status", "one", platform=ScriptedPlatform(one=(KeyboardInterrupt(),)))
    assert code == 130
    assert "Traceback" not in err


def test_no_arguments_show_the_help(run):
    code, out, _ = run()
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(":")] == [
        "Options:", "Jobs:", "Many jobs:", "What they need:", "This command:", "  Examples:",
    ]  # fmt: skip


def test_every_command_stands_below_one_topic():
    assert [name for names in TOPICS.values() for name in names] == list(SUMMARIES)


def test_every_final_phase_has_its_exit_code():
    assert {phase.value: of_phase(phase) for phase in JobPhase if phase.is_final} == {
        "Succeeded": ExitCode.DONE,
        "Failed": ExitCode.JOB_FAILED,
        "Cancelled": ExitCode.JOB_CANCELLED,
    }
