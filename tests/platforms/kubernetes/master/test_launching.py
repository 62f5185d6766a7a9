"""What is next for a launch without a pod, and when it is tried again."""

import pytest
from support.pods import pod, running, terminated

from elastic.platforms.base import ExitReason, Replica, ReplicaId, ReplicaPhase
from elastic.platforms.kubernetes.master.launches import (
    LAST_RETRY_S,
    Create,
    Launches,
    LaunchRecords,
    Remove,
    Wait,
    next_step,
)

FIRST, AGAIN, OTHER = (ReplicaId("worker", i, n) for i, n in ((0, 1), (0, 2), (1, 1)))
KILLED = Replica(FIRST, ReplicaPhase.FAILED, exit_reason=ExitReason.KILLED)


@pytest.fixture
def launches(tmp_path):
    return Launches(LaunchRecords(tmp_path / "launches.json"))


class TestWhatIsNext:
    def test_a_free_place_is_taken(self):
        assert next_step(None, is_own=False) == Create()

    def test_a_pod_that_has_ended_makes_room(self):
        ended = pod(terminated(1, message="KeyError"))
        step = next_step(ended, is_own=True)
        assert isinstance(step, Remove)
        assert (step.pod, step.earlier, step.ended.message) == (ended, FIRST, "KeyError")

    @pytest.mark.parametrize(
        ("blocking", "is_own", "words"),
        [
            pytest.param(pod(running()), True, "waits until launch 1 has ended", id="still-runs"),
            pytest.param(pod(terminated(1)), False, "of an earlier job is gone", id="not-ours"),
            pytest.param(
                {**pod(), "metadata": {"name": "x", "uid": "u"}}, True, "until x of an earlier job",
                id="no-replica",
            ),
        ],
    )  # fmt: skip
    def test_what_is_not_ours_to_remove_is_waited_for(self, blocking, is_own, words):
        step = next_step(blocking, is_own)
        assert isinstance(step, Wait)
        assert words in step.message


class TestWhenItIsTriedAgain:
    def test_pauses_double_up_to_a_limit(self, launches):
        pauses = []
        for _ in range(9):
            launches.refuse(FIRST, "exceeded quota", now_s=0.0)
            pauses.append(launches.due_s(FIRST))
        assert pauses[:3] == [1.0, 2.0, 4.0]
        assert pauses[-1] == LAST_RETRY_S

    def test_at_once_when_the_place_becomes_free(self, launches):
        for replica in (AGAIN, OTHER):
            launches.refuse(replica, "", now_s=100.0)
        launches.release("worker", 0)
        assert launches.due_s(AGAIN) == 0.0
        assert launches.due_s(OTHER) == 101.0

    def test_the_place_of_one_role_is_none_of_another(self, launches):
        launches.refuse(AGAIN, "", now_s=100.0)
        launches.release("ps", 0)
        assert launches.due_s(AGAIN) == 101.0

    def test_only_another_reason_is_news(self, launches):
        told = [launches.refuse(FIRST, text, 0.0) for text in ("", "quota", "quota", "away", "")]
        assert told == [False, True, False, True, False]

    def test_a_launch_with_a_pod_begins_its_pauses_anew(self, launches):
        launches.ask(FIRST)
        launches.refuse(FIRST, "quota", 0.0)
        launches.adopt(pod(), FIRST)
        assert (launches.waiting(), launches.due_s(FIRST)) == ([], 0.0)


class TestWhatHasBecomeOfThem:
    def test_a_launch_is_asked_for_once(self, launches):
        assert [launches.ask(FIRST), launches.ask(FIRST), launches.ask(AGAIN)] == [
            True,
            False,
            True,
        ]
        assert launches.waiting() == [FIRST, AGAIN]

    def test_an_end_is_noted_once_and_stays(self, launches):
        launches.ask(FIRST)
        assert launches.end(FIRST, KILLED)
        assert not launches.end(FIRST, Replica(FIRST, ReplicaPhase.SUCCEEDED))
        [launch] = launches
        assert launches.observed(launch, pod(running())) == KILLED
        assert not launches.end(OTHER, KILLED)

    @pytest.mark.parametrize(
        ("seen", "is_orphan"),
        [
            pytest.param(pod(running()), True, id="runs"),
            pytest.param(pod(), True, id="pending"),
            pytest.param(pod(running(), deleted=True), False, id="is-leaving"),
            pytest.param(pod(terminated(1)), False, id="has-ended"),
        ],
    )
    def test_a_pod_that_shows_itself_after_its_launch_has_ended_has_no_use(
        self, launches, seen, is_orphan
    ):
        launches.ask(FIRST)
        assert not launches.is_orphan(seen, FIRST)
        launches.end(FIRST, KILLED)
        launches.adopt(seen, FIRST)
        assert launches.is_orphan(seen, FIRST) is is_orphan
        launches.ask(AGAIN)
        launches.forget(FIRST)
        assert launches.is_orphan(seen, FIRST) is is_orphan

    def test_a_pod_of_a_launch_that_nobody_remembers_is_adopted_if_it_is_the_newest(self, launches):
        launches.adopt(pod(launch=2), AGAIN)
        launches.adopt(pod(launch=1), FIRST)
        assert [launch.replica for launch in launches] == [AGAIN]

    def test_who_waits_says_what_for(self, launches):
        launches.ask(FIRST)
        launches.refuse(FIRST, "exceeded quota", 0.0)
        [launch] = launches
        waiting = launches.observed(launch, None)
        assert (waiting.phase, waiting.message) == (ReplicaPhase.PENDING, "exceeded quota")
