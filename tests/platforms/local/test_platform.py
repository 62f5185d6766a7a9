"""`LocalPlatform`: submission, status, scale, logs, and jobs that outlive who started them."""

import os
import pty
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.local_jobs import TIMEOUT_S, eventually, unreadable

from elastic.errors import JobExistsError, JobNotFoundError, JobSpecError, PlatformError
from elastic.platforms.base import ReplicaId
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.platform import LocalPlatform
from elastic.platforms.local.surroundings import read_certificate
from elastic.policy.replicas import MAX_MASTER_CRASHES
from elastic.spec.status import JobPhase, JobStatus, Progress, WorkerStatus


def until_phase(platform, phase, name="job"):
    return eventually(lambda: (s := platform.status(name)).phase is phase and s)


def until_gone(jobs, name="job"):
    eventually(lambda: not jobs.members(name))


def kill_all(jobs):
    """What a power cut leaves: the folder and not one process."""
    jobs.end_all()
    until_gone(jobs)


class TestSubmit:
    def test_only_the_owner_can_read_the_job(self, jobs):
        jobs.submit()
        directory = jobs.directory()
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert directory.token_path.stat().st_mode & 0o777 == 0o600
        assert len(bytes.fromhex(directory.token())) == 32

    @pytest.mark.parametrize("tls", [True, None])
    def test_a_certificate_is_made_where_it_is_asked_for(self, jobs, tls):
        jobs.submit(tls=tls)
        directory = jobs.directory()
        paths = [directory.chain_path, directory.key_path]
        modes = [path.stat().st_mode & 0o777 for path in paths if path.exists()]
        assert modes == ([0o600, 0o600] if tls else [])
        assert read_certificate(directory.path) == directory.certificate()

    def test_a_folder_that_has_lost_its_certificate_is_named(self, jobs):
        jobs.submit(tls=True)
        directory = jobs.directory()
        directory.key_path.unlink()
        with pytest.raises(PlatformError, match=f"{directory.path} holds no certificate"):
            read_certificate(directory.path)

    def test_overwrite_removes_the_cuts(self, jobs):
        until_phase(jobs.submit(master="finish"), JobPhase.SUCCEEDED)
        (jobs.directory().cuts_path / "cut").touch()
        jobs.submit(overwrite=True)
        assert list(jobs.directory().cuts_path.iterdir()) == []

    def test_a_job_that_does_not_leave_keeps_its_name(self, jobs, monkeypatch):
        until_phase(jobs.submit(master="finish"), JobPhase.SUCCEEDED)
        until_gone(jobs)
        monkeypatch.setattr("elastic.platforms.local.platform.ENDING_TIMEOUT_S", 0.1)
        # As its supervisor would, if it were slow to go.
        lock = jobs.directory().supervisor_lock
        # A process that ends is without its surroundings before it is without its files.
        eventually(lock.take)
        try:
            with pytest.raises(JobExistsError, match=r"has ended, but .* still there after 0\.1 s"):
                jobs.submit(overwrite=True)
        finally:
            lock.release()
        jobs.submit(overwrite=True)

    def test_whoever_forgets_a_job_that_has_just_ended_waits_until_it_has_left(self, jobs):
        """As `elastic prune` does behind `elastic train`."""
        platform = jobs.submit(master="linger")
        until_phase(platform, JobPhase.SUCCEEDED)
        forgetting = threading.Thread(target=platform.forget, args=("job",))
        forgetting.start()
        assert jobs.directory().path.is_dir()
        os.kill(jobs.pid_of("master"), signal.SIGKILL)
        forgetting.join(TIMEOUT_S)
        assert not jobs.directory().path.exists()

    def test_a_cut_is_lost_with_a_job_that_has_failed(self, jobs):
        platform = jobs.submit(master="fail")
        status = until_phase(platform, JobPhase.FAILED)
        assert platform.would_lose(status) == ""
        (jobs.directory().cuts_path / "version-7").mkdir()
        assert platform.would_lose(status) == "what --resume goes on from"
        until_gone(jobs)
        assert platform.status("job") == status

    @pytest.mark.parametrize("name", ["cuts", "checkpoints", "predictions"])
    def test_results_are_lost_where_nothing_is_elsewhere(self, jobs, name, tmp_path):
        platform = jobs.submit(master="finish")
        status = until_phase(platform, JobPhase.SUCCEEDED)
        (jobs.directory().path / name / "version-7").mkdir(parents=True)
        assert platform.would_lose(status) == "results that are nowhere else"
        model = tmp_path / "model.keras"
        exported = status.model_copy(update={"export": str(model)})
        # One that was removed since is nowhere.
        assert platform.would_lose(exported) == "results that are nowhere else"
        model.touch()
        assert platform.would_lose(exported) == ""
        remote = status.model_copy(update={"export": "s3://bucket/model.keras"})
        assert platform.would_lose(remote) == ""

    def test_resume_keeps_cuts_logs_and_what_was_reached(self, jobs):
        until_phase(jobs.submit(master="finish"), JobPhase.SUCCEEDED)
        until_gone(jobs)
        directory = jobs.directory()
        (directory.cuts_path / "cut").touch()
        directory.write_size(5)
        reached = Progress(model_version=9)
        directory.write_status(
            JobStatus(
                job_name="job", phase=JobPhase.FAILED, ended_s=1.0, progress=reached,
                workers=(WorkerStatus(index=0, launch=1, phase="Running", pid=7),),
            )
        )  # fmt: skip
        token, submitted_s = directory.token(), directory.submission().submitted_s
        platform = jobs.submit(resume=True, seed=7)
        jobs.pid_of("master")
        status = platform.status("job")
        assert (status.phase, status.ended_s) == (JobPhase.PENDING, None)
        # The account of its time goes on.
        assert status.submitted_s == submitted_s < platform.submitted_s("job")
        assert status.progress == reached
        assert status.workers == ()
        assert [path.name for path in directory.cuts_path.iterdir()] == ["cut"]
        assert directory.control().num_workers is None
        assert directory.token() != token
        assert platform.spec("job").seed == 7
        lines = eventually(lambda: [x.text for x in platform.logs("job", [], False, None)])
        assert lines.count("master finish") == 1

    def test_resume_takes_over_from_a_job_without_processes(self, jobs, worker):
        jobs.arrange(worker, "run")
        jobs.submit(master="obey")
        jobs.pid_of("worker")
        supervisor, master = jobs.pid_of("supervisor"), jobs.pid_of("master")
        os.kill(supervisor, signal.SIGKILL)
        os.kill(master, signal.SIGKILL)
        # A process that is killed may still be there for an instant.
        ended = {supervisor, master}
        old = eventually(lambda: not ended & {m.pid for m in jobs.members()} and jobs.members())
        jobs.submit(master="obey", resume=True)
        jobs.pid_of("worker")
        assert not {m.pid for m in old} & {m.pid for m in jobs.members()}

    @pytest.mark.parametrize("how", ["overwrite", "resume"])
    def test_a_job_whose_status_is_damaged_gives_way_to_the_next(self, jobs, how):
        jobs.submit()
        jobs.pid_of("master")
        kill_all(jobs)
        jobs.directory().status_path.write_text("{")
        platform = jobs.submit(**{how: True})
        assert platform.status("job").phase is JobPhase.PENDING
        jobs.pid_of("master")

    def test_of_racing_submits_exactly_one_wins(self, jobs):
        def submit(_):
            try:
                jobs.platform().submit(jobs.spec(overwrite=True))
            except JobExistsError:
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            assert sorted(pool.map(submit, range(6))) == [False] * 5 + [True]
        jobs.uids.add(jobs.directory().submission().uid)
        jobs.pid_of("master")
        eventually(lambda: len(jobs.members()) == 2)

    def test_a_full_disk_leaves_nothing_behind(self, jobs):
        platform = jobs.platform()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        try:
            with pytest.raises(PlatformError, match=r"cannot write .*spec\.json"):
                platform.submit(jobs.spec())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert platform.jobs() == []
        assert [p.name for p in (jobs.home / "jobs").iterdir()] == [".job.lock"]

    def test_a_job_outlives_its_terminal(self, jobs, worker):
        jobs.arrange(worker, "run")
        program = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from support.local_jobs import Jobs\n"
            "Jobs(Path(sys.argv[2]), is_new=False).submit(master='obey')\n"
            "print('submitted', flush=True)\n"
            "import time; time.sleep(3600)\n"
        )
        tests = str(Path(sys.modules["support.local_jobs"].__file__).parents[1])
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(
                sys.executable,
                [sys.executable, "-c", program, tests, str(jobs.behaviours.parent)],
            )
        output = b""
        while b"submitted" not in output:
            output += os.read(terminal, 1000)
        jobs.uids.add(jobs.directory().submission().uid)
        roles = ("supervisor", "master", "worker")
        before = [jobs.pid_of(role) for role in roles]
        os.close(terminal)
        # The closed terminal hangs up on the session of the one who submitted.
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGHUP
        jobs.platform().scale("job", 1)
        assert [jobs.pid_of(role) for role in roles] == before


class TestMaster:
    def test_a_killed_master_is_restarted_and_workers_are_not(self, jobs, worker):
        jobs.arrange(worker, "run")
        platform = jobs.submit(master="obey")
        worker_pid, master = jobs.pid_of("worker"), jobs.pid_of("master")
        os.kill(master, signal.SIGKILL)
        eventually(lambda: jobs.directory().address() == "127.0.0.1:2")
        assert jobs.pid_of("master") != master
        assert jobs.pid_of("worker") == worker_pid
        assert platform.status("job").phase is JobPhase.RUNNING

    def test_a_master_in_a_crash_loop_fails_the_job_with_its_reason(self, jobs):
        platform = jobs.submit(master="crash")
        status = until_phase(platform, JobPhase.FAILED)
        assert status.reason == "MasterCrashed"
        assert f"{MAX_MASTER_CRASHES} times" in status.message
        assert "RuntimeError: no such table" in status.message
        assert status.ended_s is not None
        until_gone(jobs)
        log = jobs.directory().log_path(ReplicaId("master", 0, 1)).read_text()
        assert log.count("--- launch") == MAX_MASTER_CRASHES

    def test_a_crash_loop_is_counted_though_the_status_is_damaged(self, jobs):
        jobs.submit(master="crash")
        directory = jobs.directory()
        directory.status_path.write_text("{")
        status = eventually(directory.sound_status)
        assert (status.phase, status.reason) == (JobPhase.FAILED, "MasterCrashed")
        until_gone(jobs)

    def test_a_master_that_is_ended_by_the_users_code_is_said_with_where_it_was(self, jobs):
        status = until_phase(jobs.submit(master="depart"), JobPhase.FAILED)
        assert (status.reason, status.message) == (
            "MasterCrashed",
            f"the master crashed {MAX_MASTER_CRASHES} times without progress, last while it "
            "prepared the job (dataset_fn of mine): exit code 3: master depart",
        )

    def test_between_two_masters_the_status_says_so(self, jobs):
        platform = jobs.submit(master="falter")
        assert "(evicted)" in until_phase(platform, JobPhase.RECOVERING).message

    def test_a_master_that_ends_without_a_result_fails_the_job(self, jobs):
        status = until_phase(jobs.submit(master="vanish"), JobPhase.FAILED)
        assert "published no result" in status.message

    def test_a_job_whose_program_is_missing_fails(self, jobs):
        platform = jobs.platform()
        platform._commands["master"] = ("/no/such/program",)
        platform.submit(jobs.spec())
        jobs.uids.add(jobs.directory().submission().uid)
        assert "/no/such/program" in until_phase(platform, JobPhase.FAILED).message

    def test_replicas_have_the_environment_of_the_spec(self, jobs):
        jobs.submit(envs={"COLOUR": "blue"})
        environment = Path(f"/proc/{jobs.pid_of('master')}/environ").read_text().split("\0")
        assert "COLOUR=blue" in environment
        assert f"ELASTIC_JOB_UID={jobs.directory().submission().uid}" in environment


class TestStatusAndScale:
    def test_who_asks_for_an_unknown_job_is_told_the_known_ones(self, jobs):
        platform = jobs.submit()
        # The second is the path of the folder of one that there is.
        for name in ("other", "../jobs/job"):
            with pytest.raises(JobNotFoundError, match="known jobs: job"):
                platform.status(name)

    def test_a_job_without_processes_says_so(self, jobs, worker):
        jobs.arrange(worker, "run")
        platform = jobs.submit(master="obey")
        jobs.pid_of("worker")
        until_phase(platform, JobPhase.RUNNING)
        kill_all(jobs)
        status = platform.status("job")
        assert status.phase is JobPhase.RECOVERING
        assert "no process of this job is alive; `elastic train --resume`" in status.message
        for num_workers in (1, 99):
            with pytest.raises(JobSpecError, match=r"does not run: no process .* is alive"):
                platform.scale("job", num_workers)
        with pytest.raises(JobExistsError, match="lost all its processes"):
            jobs.submit()

    def test_scale_reaches_the_master(self, jobs):
        for index in range(3):
            jobs.arrange(ReplicaId("worker", index, 1), "run")
        platform = jobs.submit(master="obey", num_workers="1:3")
        jobs.pid_of("worker")
        platform.scale("job", 3)
        eventually(lambda: len(jobs.members(role="worker")) == 3)


class TestLogs:
    def test_there_is_no_life_before_in_a_local_log(self, jobs):
        platform = jobs.submit(master="finish")
        with pytest.raises(JobSpecError, match="holds all lives"):
            platform.logs("job", [], False, None, previous=True)

    def test_follow_ends_with_the_job_and_loses_nothing(self, jobs, worker):
        jobs.arrange(worker, "chatty")
        platform = jobs.submit(master="obey")
        lines = []
        for line in platform.logs("job", ["worker-0"], True, None):
            lines.append(line.text)
            if line.text == "line 10":
                platform.kill("job", 120.0)
        numbered = [text for text in lines if text.startswith("line ")]
        assert numbered == [f"line {i}" for i in range(len(numbered))]
        # What a worker says at SIGTERM, without an end of the line.
        assert lines[-1] == "last words"


def test_status_of_a_job_that_never_published(jobs):
    started_s = time.time()
    status = jobs.submit().status("job")
    assert (status.job_name, status.phase) == ("job", JobPhase.PENDING)
    assert started_s <= status.submitted_s <= time.time()


def test_a_source_checkout_is_imported_from_any_folder(jobs, tmp_path):
    """A file of the working folder does not stand in for one of our imports either."""
    (tmp_path / "pydantic.py").write_text("raise SystemExit('shadowed')")
    program = (
        "import sys; from pathlib import Path; from elastic.platforms.local.platform import *\n"
        "from elastic.spec.job import JobSpec\n"
        "LocalPlatform(Path(sys.argv[1])).submit(JobSpec.model_validate_json(sys.argv[2]))"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", program, str(jobs.home), jobs.spec().model_dump_json()],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
        check=True,
    )
    jobs.uids.add(jobs.directory().submission().uid)
    # The master has imported all of it when it finds that there is no such model.
    status = until_phase(jobs.platform(), JobPhase.FAILED)
    assert status.reason == "ModelDef"
    log = jobs.directory().log_path(ReplicaId("master", 0, 1))
    assert "shadowed" not in log.read_text() + jobs.directory().supervisor_log_path.read_text()


@pytest.fixture
def two_ended(tmp_path):
    """A platform with the ended jobs `good` and `bad`."""
    for job in ("good", "bad"):
        directory = JobDirectory(tmp_path / "jobs" / job)
        directory.path.mkdir(parents=True)
        directory.write_status(JobStatus(job_name=job, phase=JobPhase.SUCCEEDED))
        directory.submission_path.write_text('{"uid": "u", "submitted_s": 7.0, "commands": {}}')
    return LocalPlatform(tmp_path)


@pytest.mark.parametrize("name", ["status.json", "submission.json"])
def test_a_damaged_job_does_not_hide_the_others(tmp_path, two_ended, name):
    platform = two_ended
    (tmp_path / "jobs" / "bad" / name).write_text("")
    assert sorted(platform.jobs()) == ["bad", "good"]
    told = {status.job_name: status for status in platform.statuses()}
    assert told["good"].phase is JobPhase.SUCCEEDED
    assert (told["bad"].phase, told["bad"].reason) == (JobPhase.FAILED, "Damaged")
    assert f"{name} is damaged" in told["bad"].message
    with pytest.raises(JobNotFoundError, match="known jobs: "):
        platform.status("nosuch")


@pytest.mark.parametrize("name", ["", "submission.json", "supervisor.lock", "logs"])
def test_a_job_that_cannot_be_looked_at_is_told_as_that(tmp_path, two_ended, name):
    directory = JobDirectory(tmp_path / "jobs" / "bad")
    for path in (directory.path / "supervisor.lock", directory.logs_path):
        path.touch()
    asked = {
        "status": lambda: two_ended.status("bad"),
        "logs": lambda: list(two_ended.logs("bad", [], False, None)),
    }
    if name == "logs":
        del asked["status"]
    with unreadable(directory.path / name):
        assert sorted(two_ended.jobs()) == ["bad", "good"]
        told = {status.job_name: status for status in two_ended.statuses()}
        for ask in asked.values() if name != "supervisor.lock" else [asked["status"]]:
            with pytest.raises(PlatformError, match=f"cannot .*bad.*{name}"):
                ask()
    assert told["good"].phase is JobPhase.SUCCEEDED
    assert told["bad"].reason == ("" if name == "logs" else "Damaged")


def test_a_job_tells_how_many_workers_it_is_to_have_before_its_master_does(jobs):
    platform = jobs.submit(master="idle", num_workers="2:4")
    assert 2 <= platform.status("job").desired_workers <= 4
    platform.scale("job", 3)
    assert platform.status("job").desired_workers == 3
