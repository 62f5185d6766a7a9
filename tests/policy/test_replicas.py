"""The life of one launch, as its table has it."""

import pytest

from elastic.errors import TransitionError
from elastic.policy.replicas import TRANSITIONS, ExitReason, Replica, ReplicaId, ReplicaPhase


@pytest.mark.parametrize("before", ReplicaPhase)
@pytest.mark.parametrize("after", ReplicaPhase)
def test_a_replica_enters_what_the_table_says_and_nothing_else(before, after):
    replica = Replica(ReplicaId("worker", 0, 1), before)
    if after in TRANSITIONS[before] or after is before:
        changed = replica.entering(after, exit_reason=ExitReason.KILLED)
        assert (changed.phase, changed.exit_reason) == (after, ExitReason.KILLED)
        assert changed.id == replica.id
    else:
        with pytest.raises(TransitionError, match=f"{before} cannot become {after}"):
            replica.entering(after)


def test_a_launch_ends_once():
    ended = {phase for phase in ReplicaPhase if phase.is_final}
    assert ended == {ReplicaPhase.SUCCEEDED, ReplicaPhase.FAILED}
    assert ReplicaPhase.RUNNING not in {after for phase in ended for after in TRANSITIONS[phase]}
