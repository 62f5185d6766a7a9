"""Which replica of a TFJob goes where: decisions count replicas by nodes, pods have names. Pure.

Replicas stay where they are. Where a node is to have fewer of a role, those with the highest
numbers leave, which are never number 0; new ones take the lowest numbers that are free.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from elastic.controller.autoscaling.resizing import AUTOSCALED, COMPONENT
from elastic.controller.kinds.pods import GROUP_LABEL, JOB_LABEL, index_of, replica_name
from elastic.controller.reconciling import Change, Note
from elastic.controller.resources import tf_job
from elastic.controller.resources.common import time_text
from elastic.controller.snapshots.job_kinds import fresh_seats
from elastic.controller.snapshots.pods import card_of, node_name
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.pods.states import has_ended
from elastic.policy.cluster.plan import Decision
from elastic.policy.cluster.snapshot import Cards, Placement

PLACED: Final = "Placed"

Seats: TypeAlias = dict[str, tuple[str, str | None]]
"""By the name of a pod, its node and its card."""


def tf_job_change(
    job: Manifest, decision: Decision, pods: Iterable[Manifest], now_s: float
) -> Change | None:
    """The size and the seats of a TFJob, in its status; its pods follow.

    Args:
        job: The job.
        decision: Of the scheduler.
        pods: Of its namespace, and SharePods that have no pod yet.
        now_s: Seconds since the epoch.
    """
    spec, status = tf_job.read_tf_job(job).spec, tf_job.read_status(job)
    if spec is None or decision.replicas == 0:
        return None
    asked = spec.worker_range[1]
    if status.size is not None and status.size_asked != asked:
        # What a user has just written is taken note of first.
        return None
    name = str(job["metadata"]["name"])
    there = _there(pods, name) | {
        pod: (each.node, each.card) for pod, each in fresh_seats(status, now_s).items()
    }
    wanted = _placements(decision)
    seats: Seats = {}
    for role, replicas in spec.roles.items():
        task = role.task_type
        now = {pod: seat for pod, seat in there.items() if index_of(pod, name, task) is not None}
        if task not in wanted:
            seats |= now
            continue
        most = spec.worker_range[2] if role is tf_job.Role.WORKER else replicas.replicas
        names = [replica_name(name, task, index) for index in range(most)]
        seats |= _seated(names, now, wanted[task], decision.cards.get(task))
    change = {
        "size": decision.replicas,
        "sizeAsked": asked,
        "lastScaleTime": time_text(now_s),
        "seats": _written(seats, status.seats),
    }
    before = status.size or 0
    is_resized = before != decision.replicas
    text = f"from {before} to {decision.replicas} workers, {decision.reason}"
    note = Note(AUTOSCALED, text) if is_resized else Note(PLACED, decision.reason)
    return Change(
        tf_job.RESOURCE, job, {"status": change}, COMPONENT, note, part="status"
    )  # fmt: skip


def _there(pods: Iterable[Manifest], job: str) -> Seats:
    """Pods of the job that have a node, and stay."""
    labels = {GROUP_LABEL: tf_job.RESOURCE.group, JOB_LABEL: job}.items()
    return {
        str(pod["metadata"]["name"]): (node, card_of(pod))
        for pod in pods
        if (node := node_name(pod)) is not None
        and not has_ended(pod)
        and labels <= (pod["metadata"].get("labels") or {}).items()
        and not pod["metadata"].get("deletionTimestamp")
    }


def _placements(decision: Decision) -> dict[str, Placement]:
    """By role, where its replicas are to be, as far as the decision says so."""
    found = dict(decision.other_placements)
    if decision.placement is not None:
        found[tf_job.Role.WORKER.task_type] = decision.placement
    if decision.ps_placement is not None:
        found[tf_job.Role.PS.task_type] = decision.ps_placement
    return found


def _seated(names: list[str], now: Seats, wanted: Placement, cards: Cards | None) -> Seats:
    """The seats of one role.

    Args:
        names: Of all pods that it may have, by their numbers.
        now: Of those that are there.
        wanted: How many there are to be on each node.
        cards: How many on each card, where they have parts of cards.
    """
    places = _places(wanted, cards)
    seats: Seats = {}
    for name in names:
        seat = now.get(name)
        if seat is not None and places[seat] > 0:
            places[seat] -= 1
            seats[name] = seat
    free = (name for name in names if name not in seats)
    return seats | dict(zip(free, _each(places), strict=False))


def _places(wanted: Placement, cards: Cards | None) -> "Counter[tuple[str, str | None]]":
    """How many there are to be at each place."""
    if cards is None:
        return Counter({(node, None): count for node, count in wanted.items()})
    return Counter(
        {(node, card): count for node, each in cards.items() for card, count in each.items()}
    )


def _each(places: Mapping[tuple[str, str | None], int]) -> Iterator[tuple[str, str | None]]:
    for place in sorted(places, key=lambda each: (each[0], each[1] or "")):
        yield from [place] * places[place]


def _written(seats: Seats, before: Mapping[str, object]) -> dict[str, Any]:
    """As a merge patch: what is no more is named too."""
    gone: dict[str, Any] = {name: None for name in before if name not in seats}
    return gone | {
        name: {"node": node, "card": card} for name, (node, card) in sorted(seats.items())
    }
