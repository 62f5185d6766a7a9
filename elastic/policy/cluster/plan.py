"""What a policy decides."""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Protocol, TypeVar

from elastic.policy.cluster.snapshot import Cards, Placement, Snapshot

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Decision:
    """The size of one job, where it is to change.

    Where something is placed, the placement is whole: of all replicas that have a node once this is
    carried out, those that stay where they are included. Kinds that choose the nodes of their pods
    follow it; for others it says where room was found, and Kubernetes chooses.

    Attributes:
        job: Its key.
        replicas: How many workers it is to have; 0 for a job that is to wait.
        placement: Where its workers are then; fewer than `replicas` where some wait for a node.
        ps_replicas: How many parameter servers; None where it has none, or they stay as they are.
        ps_placement: Where those are then; None likewise.
        other_placements: Where its other groups are then, by role; without those that stay.
        cards: For groups with parts of GPUs, by role: which cards they have then.
        is_after_others: Whether some of its room is still held by replicas that are leaving, or
            leave by this plan: who chooses the nodes of pods makes them once these have gone.
        reason: Why, for people.
        global_batch_size: Samples of one update from then on; None where it stays as it is.
    """

    job: str
    replicas: int
    reason: str
    placement: Placement | None = None
    ps_replicas: int | None = None
    ps_placement: Placement | None = None
    other_placements: Mapping[str, Placement] = field(default_factory=dict)
    cards: Mapping[str, Cards] = field(default_factory=dict)
    is_after_others: bool = False
    global_batch_size: int | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Why a job does not get what it lacks, for people."""

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done now.

    Attributes:
        decisions: One for each job that changes, in the order in which they are carried out: what
            gives room comes before what takes it.
        notes: On jobs that would change and cannot.
    """

    decisions: tuple[Decision, ...] = ()
    notes: tuple[Note, ...] = ()


class Policy(Protocol):
    """Decides the sizes of all jobs of a cluster.

    A plan is a function of the snapshot alone; carried out, and asked again at the same moment, it
    is empty.
    """

    def plan(self, snapshot: Snapshot) -> Plan:
        """What is to change now."""
        ...


def uncollected(plan: Callable[[P, Snapshot], Plan]) -> Callable[[P, Snapshot], Plan]:
    """Have the collector of cycles rest while a policy plans.

    What is made for a plan lives until it is there, so that it would only walk over all of it,
    again and again: a fifth of the time of a plan for 10,000 jobs, and more.
    """

    @wraps(plan)
    def planned(policy: P, snapshot: Snapshot) -> Plan:
        if not gc.isenabled():
            return plan(policy, snapshot)
        gc.disable()
        try:
            return plan(policy, snapshot)
        finally:
            gc.enable()

    return planned
