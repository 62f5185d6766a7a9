"""What the lives of a master before the present one mean for it."""

import time
from types import SimpleNamespace

import pytest
from support.fake_platform import FakeReplicaRunner
from support.pods import pod

from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes import supervisor
from elastic.platforms.kubernetes.master import environment
from elastic.platforms.kubernetes.master.environment import Account, begin_life, take_account
from elastic.platforms.kubernetes.supervisor import ACCOUNT_NAME, LifeLog
from elastic.platforms.process import STEP_NAME
from elastic.policy.replicas import MAX_MASTER_CRASHES, EndJob, RestartMaster
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase, JobStatus, MasterHistory, Progress

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)


def container(restarts=0, **last):
    state = {"terminated": last} if last else {}
    entry = {"name": "elastic", "restartCount": restarts, "state": {}, "lastState": state}
    return pod({"phase": "Running", "containerStatuses": [entry]}) | {
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}
    }


FRESH = container()


def status(version=0, phase=JobPhase.RUNNING):
    return JobStatus(job_name="j", phase=phase, progress=Progress(model_version=version))


class Masters:
    """Lives of one master, each of which looks first how those before have ended."""

    def __init__(self, folder):
        self.folder = folder
        self.log = LifeLog(folder)
        self.account = Account()

    def live(self, told=None, cancelled=False, seen=FRESH, step=""):
        """One life begins; gives what it decides."""
        self.log.begin()
        self.account, verdict = take_account(
            self.account, self.log.read(), seen, told, cancelled, step
        )
        return verdict

    def crash(self, code=1, words="boom", is_memory=False):
        self.log.end(code, is_memory, words)

    def lose_container(self):
        """The present life ends with it, and nobody writes that down."""
        self.log = LifeLog(self.folder)


@pytest.fixture
def masters(tmp_path):
    return Masters(tmp_path)


def test_the_first_life_goes_on(masters):
    assert masters.live() is None


def test_crashes_without_progress_end_the_job(masters):
    masters.live()
    verdicts = []
    for _ in range(MAX_MASTER_CRASHES):
        masters.crash()
        verdicts.append(masters.live(status(5)))
    assert [each.delay_s for each in verdicts[:-1]] == [0.0, 0.5, 1.0, 2.0]
    assert verdicts[-1].reason == "MasterCrashed"
    assert "boom" in verdicts[-1].message


def test_memory_is_told_with_the_setting_that_helps(masters):
    resources = {"limits": {"memory": "1Gi"}, "requests": {"memory": "512Mi"}}
    seen = container()
    seen["spec"] = {"containers": [{"name": "elastic", "resources": resources}]}
    seen["metadata"] |= {"labels": {"elastic-replica-type": "master"}}
    masters.live()
    for _ in range(MAX_MASTER_CRASHES):
        masters.crash(137, "", is_memory=True)
        end = masters.live(status(5), seen=seen)
    assert end.message == (
        "the master crashed 5 times without progress: out of memory (its limit is 1Gi): raise "
        "memory in --master_resource_limit"
    )


def test_lives_that_end_before_they_have_looked_are_counted_by_the_next(masters):
    for _ in range(MAX_MASTER_CRASHES):
        masters.log.begin()
        masters.crash()
    assert masters.live(status(5)).reason == "MasterCrashed"


def test_a_life_that_ended_with_its_container_is_told_by_the_node(masters):
    masters.live()
    for number in range(1, MAX_MASTER_CRASHES + 1):
        masters.lose_container()
        end = masters.live(
            status(5), seen=container(number, exitCode=137, reason="OOMKilled", message="")
        )
    assert end.reason == "MasterCrashed"
    assert "out of memory" in end.message


def test_of_older_containers_nobody_knows_the_end_so_it_is_no_crash(masters):
    for _ in range(MAX_MASTER_CRASHES):
        masters.log.begin()
        masters.lose_container()
    last = container(MAX_MASTER_CRASHES, exitCode=1, reason="Error", message="boom")
    assert isinstance(masters.live(status(5), seen=last), RestartMaster)
    assert (masters.account.history.crashes, masters.account.history.ends) == (1, 5)


def test_a_crash_loop_in_the_preparation_names_the_step_of_the_last_life(masters):
    masters.live()
    for number in range(1, MAX_MASTER_CRASHES + 1):
        masters.crash()
        end = masters.live(step=f"step {number}")
    assert f"last while it prepared the job (step {MAX_MASTER_CRASHES}): boom" in end.message


def test_progress_and_kills_cost_nothing(masters):
    masters.live()
    for number in range(1, 3 * MAX_MASTER_CRASHES):
        masters.crash()
        assert masters.live(status(number)) == RestartMaster(0.0)
    for _ in range(2 * MAX_MASTER_CRASHES):
        masters.crash(137, "")
        assert isinstance(masters.live(status(99)), RestartMaster)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_published_end_is_the_end(masters, cancelled):
    masters.live()
    masters.crash(137, "")
    assert masters.live(status(phase=JobPhase.SUCCEEDED), cancelled) == EndJob()


def test_a_cancelled_job_is_not_begun_again(masters):
    masters.live()
    masters.crash(137, "")
    assert masters.live(status(5), cancelled=True).phase is JobPhase.CANCELLED


class TestBeginning:
    @pytest.fixture
    def runner(self):
        runner = FakeReplicaRunner()
        runner.publish_status(status(5))
        return runner

    def test_an_end_that_could_not_be_told_is_found_again(self, tmp_path, runner):
        log = LifeLog(tmp_path)
        for _ in range(MAX_MASTER_CRASHES):
            log.begin()
            log.end(1, is_memory=False, words="boom")
        log.begin()
        (tmp_path / STEP_NAME).write_text("the data")
        for _ in range(2):
            assert begin_life(tmp_path, lambda: FRESH, runner, SPEC) is None
            assert "(the data): boom" in runner.last_status().message
            runner.publish_status(status(5))

    def test_ends_are_counted_once_and_their_history_is_told(self, tmp_path, runner):
        log = LifeLog(tmp_path)
        for number in range(3):
            log.begin()
            account = begin_life(tmp_path, lambda: FRESH, runner, SPEC)
            assert (account.history.crashes, account.history.ends) == (number, number)
            assert account.last_end == ("failed: boom" if number else "")
            log.end(1, is_memory=False, words="boom")

    def test_lives_that_end_too_fast_wait_and_say_so(self, tmp_path, runner, monkeypatch):
        slept = []
        # Not of the module that all share: threads of other tests may sleep meanwhile.
        clock = SimpleNamespace(
            time=lambda: 1000.0 + sum(slept),
            time_ns=time.time_ns,
            sleep=slept.append,
            monotonic=time.monotonic,
        )
        monkeypatch.setattr(environment, "time", clock)
        monkeypatch.setattr(supervisor, "time", clock)
        log = LifeLog(tmp_path)
        for _ in range(4):
            log.begin()
            log.end(137, is_memory=False, words="")
        log.begin()
        begin_life(tmp_path, lambda: FRESH, runner, SPEC)
        # They are known all at once, so all but the first came without progress.
        assert sum(slept) == pytest.approx(2.0)
        told = runner.last_status()
        assert (told.phase, told.reason) == (JobPhase.RECOVERING, "MasterLost")
        assert told.message.endswith("goes on in about 2 s")

    def test_nobody_waits_for_a_job_that_is_cancelled(self, tmp_path, runner):
        log = LifeLog(tmp_path)
        for _ in range(12):
            log.begin()
            log.end(137, is_memory=False, words="")
        log.begin()
        asked = iter([JobControl(), *[JobControl(cancelled=True)] * 3])
        runner.control = lambda: next(asked)
        began_s = time.monotonic()
        begin_life(tmp_path, lambda: FRESH, runner, SPEC)
        assert time.monotonic() - began_s < 10.0

    def test_a_node_may_take_a_moment_to_tell_of_the_container_before(self, tmp_path, runner):
        LifeLog(tmp_path).begin()
        LifeLog(tmp_path).begin()
        last = container(1, exitCode=1, reason="Error", message="boom")
        reads = iter([FRESH, last])
        account = begin_life(tmp_path, lambda: next(reads), runner, SPEC)
        assert account.history.crashes == 1

    def test_a_damaged_account_costs_counts_alone(self, tmp_path, runner):
        (tmp_path / ACCOUNT_NAME).write_text("{")
        LifeLog(tmp_path).begin()
        assert begin_life(tmp_path, lambda: FRESH, runner, SPEC) is not None

    def test_a_master_that_was_made_after_the_end_of_its_job_does_nothing(self, tmp_path, runner):
        """Whoever made it had not seen the end yet."""
        LifeLog(tmp_path).begin()
        runner.publish_status(status(5, JobPhase.SUCCEEDED))
        assert begin_life(tmp_path, lambda: FRESH, runner, SPEC) is None
        assert runner.last_status().phase is JobPhase.SUCCEEDED

    def test_crashes_of_masters_in_other_pods_count_on(self, tmp_path, runner):
        """Or a job whose master crashes on each node would have it made for ever."""
        told = MasterHistory(
            crashes=MAX_MASTER_CRASHES - 1, ends=4, best_version=5, has_worked=True
        )
        runner.publish_status(status(5).model_copy(update={"master_history": told}))
        log = LifeLog(tmp_path)
        log.begin()
        account = begin_life(tmp_path, lambda: FRESH, runner, SPEC)
        # How a master in another pod ended is nobody's to tell here.
        assert (account.history, account.last_end) == (told, "")
        log.end(1, is_memory=False, words="boom")
        log.begin()
        assert begin_life(tmp_path, lambda: FRESH, runner, SPEC) is None
        assert runner.last_status().reason == "MasterCrashed"

    def test_those_of_an_earlier_submission_do_not(self, tmp_path, runner):
        told = MasterHistory(crashes=4, ends=4)
        pending = status(5, JobPhase.PENDING).model_copy(update={"master_history": told})
        runner.publish_status(pending)
        LifeLog(tmp_path).begin()
        in_time = FRESH | {"metadata": {"creationTimestamp": "2126-01-01T00:00:00Z"}}
        assert begin_life(tmp_path, lambda: in_time, runner, SPEC).history == MasterHistory()
