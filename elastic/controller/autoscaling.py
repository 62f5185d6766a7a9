"""The sizes of all jobs together: what a policy decides becomes what is written into their objects.

Belongs here: which policy is asked for which kinds, and what its answer means for an object of
each. Does not belong here: the policies themselves, and writing. Nothing here makes or removes a
pod: whoever looks after a kind follows the size in its object. Pure.

A plan is made of what there is, and of nothing else: whoever writes it may fail half-way, and the
next one is made of what has come of it.

Decisions about a TFJob count replicas by nodes, and its pods have names. Replicas stay where they
are. Where a node is to have fewer of a role, those with the highest numbers leave, which are never
number 0; new ones take the lowest numbers that are free.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from elastic.controller.kinds.common import GROUP_LABEL, JOB_LABEL, index_of, replica_name
from elastic.controller.kinds.training_look import status_of
from elastic.controller.reconciling import Change, EventType, Note, Overview
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.controller.resources.common import read_spec, time_text
from elastic.controller.snapshots.objects import (
    RESOURCES,
    card_of,
    fresh_seats,
    given,
    holding,
    is_control_news,
    is_news,
    is_record,
    kind_of,
    node_name,
    size_of,
)
from elastic.controller.snapshots.reading import TRAIN_JOBS, Objects, snapshot_of
from elastic.errors import PlatformError
from elastic.platforms.base import JobControl
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest, Resource
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import (
    control_of,
    dump_control,
    spec_of,
    submission_of,
)
from elastic.platforms.kubernetes.pods import has_ended
from elastic.policy.cluster import Cards, Decision, Placement, Policy

PERIOD_S: Final = 5.0
HOLD_S: Final = 600.0
"""How long a size that a user has set is left alone."""

SCALED: Final = frozenset({"trainingjob", "elasticjob", TRAIN_JOBS})
"""The kinds whose pods Kubernetes places; the others are placed by a scheduler of their own."""

RESIZED_SPECS: Final = (elastic_job.RESOURCE,)
"""Types whose spec has the size; that of the others is in their status, or in a ConfigMap."""
COMPONENT: Final = "elastic-autoscaler"
"""Source of the events of what it does."""

AUTOSCALED: Final = "Autoscaled"
HELD: Final = "Held"
PLACED: Final = "Placed"

Seats: TypeAlias = dict[str, tuple[str, str | None]]
"""By the name of a pod, its node and its card."""


@dataclass(frozen=True, slots=True)
class Share:
    """One policy, and whose sizes it decides; to it the pods of all others are simply there.

    Attributes:
        kinds: Lower-case names.
    """

    kinds: frozenset[str]
    policy: Policy


@dataclass(frozen=True, slots=True)
class _Seen:
    """The objects of one moment, as they are found again by what is decided.

    Attributes:
        jobs: By key, such as `ElasticJob/team/ddp`: what is written into, and what is told of.
    """

    objects: Objects
    jobs: Mapping[str, tuple[Manifest, Manifest | None]]


class ClusterScaler:
    """See `Scaler`; remembers only what it has told."""

    looks_at = (*RESOURCES.values(), elastic_train_job.RESOURCE, tf_job.SHARE_PODS, CONFIGMAPS)

    def __init__(
        self, shares: Sequence[Share], hold_s: float = HOLD_S, period_s: float = PERIOD_S
    ) -> None:
        """Args: see `Share` and `HOLD_S`; no two shares have a kind in common."""
        self._shares = shares
        self._hold_s = hold_s
        self.period_s = period_s
        self._waiting: set[str] = set()

    def plan(self, overview: Overview) -> Sequence[Change]:
        """See `Scaler`: what users have set first, then the policies one after the other."""
        seen = _seen(overview)
        changes = list(self._holds(seen))
        # Before what is written: a refusal ends that, and who waits is told of once.
        told: list[Change] = []
        noted: set[str] = set()
        for share in self._shares:
            plan = share.policy.plan(snapshot_of(_of_kinds(seen.objects, share.kinds)))
            for decision in plan.decisions:
                changes.extend(_changes(seen, decision))
            noted |= {note.job for note in plan.notes}
            new = (note for note in plan.notes if note.job not in self._waiting)
            told.extend(_waiting(seen, note.job, note.text) for note in new)
        self._waiting = noted
        return [*told, *changes]

    def _holds(self, seen: _Seen) -> Iterator[Change]:
        kinds = frozenset().union(*(share.kinds for share in self._shares))
        now_s = seen.objects.now_s
        for target, resource in seen.jobs.values():
            found = None
            if target["kind"] == CONFIGMAPS.kind and TRAIN_JOBS in kinds:
                found = train_job_hold(target, resource, now_s, self._hold_s)
            elif target["kind"] == elastic_job.RESOURCE.kind and "elasticjob" in kinds:
                found = elastic_job_hold(target, now_s, self._hold_s)
            if found is not None:
                yield found


def _seen(overview: Overview) -> _Seen:
    found = {
        kind: [_named(each, resource) for each in overview.objects.get(resource, ())]
        for kind, resource in RESOURCES.items()
    }
    maps = [_named(each, CONFIGMAPS) for each in overview.objects.get(CONFIGMAPS, ())]
    pods = {_place(pod) for pod in overview.pods}
    share_pods = overview.objects.get(tf_job.SHARE_PODS, ())
    objects = Objects(
        overview.now_s,
        overview.nodes,
        overview.pods,
        found,
        [each for each in share_pods if _place(each) not in pods],
        maps,
    )
    jobs: dict[str, tuple[Manifest, Manifest | None]] = {
        _key(str(job["kind"]), job): (job, None) for each in found.values() for job in each
    }
    resources = {
        str(each["metadata"]["uid"]): _named(each, elastic_train_job.RESOURCE)
        for each in overview.objects.get(elastic_train_job.RESOURCE, ())
    }
    for record in filter(is_record, maps):
        jobs |= _recorded(record, resources)
    return _Seen(objects, jobs)


def _recorded(
    record: Manifest, resources: Mapping[str, Manifest]
) -> dict[str, tuple[Manifest, Manifest | None]]:
    try:
        submission = submission_of(record)
    except PlatformError:
        return {}
    owner = None if submission.owner is None else resources.get(submission.owner.uid)
    name = str(record["metadata"]["labels"][names.JOB_LABEL])
    namespace = str(record["metadata"]["namespace"])
    return {f"{kind_of(submission)}/{namespace}/{name}": (record, owner)}


def _of_kinds(objects: Objects, kinds: frozenset[str]) -> Objects:
    """The same, with other kinds' jobs as pods that belong to none."""
    return Objects(
        objects.now_s,
        objects.nodes,
        objects.pods,
        {kind: jobs for kind, jobs in objects.jobs.items() if kind in kinds},
        objects.share_pods,
        objects.config_maps if TRAIN_JOBS in kinds else (),
    )


def _changes(seen: _Seen, decision: Decision) -> Iterator[Change]:
    """What a decision means for the object of its job."""
    job, resource = seen.jobs[decision.job]
    now_s = seen.objects.now_s
    change = None
    match job["kind"]:
        case training_job.RESOURCE.kind:
            change = training_job_change(job, decision, now_s)
        case elastic_job.RESOURCE.kind:
            change = elastic_job_change(job, decision)
        case tf_job.RESOURCE.kind:
            change = tf_job_change(job, decision, _neighbours(seen.objects, job), now_s)
        case CONFIGMAPS.kind:
            change = train_job_change(job, resource, decision, now_s)
    if change is not None:
        yield change


def _neighbours(objects: Objects, job: Manifest) -> Iterator[Manifest]:
    """The pods of its namespace."""
    namespace = _place(job)[0]
    yield from (pod for pod in (*objects.pods, *objects.share_pods) if _place(pod)[0] == namespace)


def _waiting(seen: _Seen, key: str, text: str) -> Change:
    job, resource = seen.jobs[key]
    return Change(
        RESOURCES.get(str(job["kind"]).lower(), CONFIGMAPS),
        job,
        None,
        COMPONENT,
        waiting(text),
        told_of=resource,
    )


def _named(item: Manifest, resource: Resource) -> Manifest:
    """An item of a list, which leaves out what all of it have in common."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


def _key(kind: str, job: Manifest) -> str:
    return f"{kind}/{'/'.join(_place(job))}"


def _place(item: Manifest) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def training_job_change(job: Manifest, decision: Decision, now_s: float) -> Change | None:
    """The sizes that a TrainingJob is to have, in its status; its own events tell of them."""
    status, spec = status_of(job), read_spec(training_job.TrainingJobSpec, job).spec
    if spec is None or status.phase is training_job.Phase.NONE:
        return None
    scale, part = status.scale_status, {}
    pservers = decision.ps_replicas
    for name, before, size, least in (
        ("trainer", scale.trainer, decision.replicas, spec.trainer.min_instance),
        ("pserver", scale.pserver, pservers, spec.pserver.min_instance),
    ):
        # A job that is to wait waits with the pods of its smallest size.
        if size is not None and max(size, least) != before.wanted:
            part[name] = {
                "wanted": max(size, least),
                "reason": decision.reason,
                "time": time_text(now_s),
            }
    if not part:
        return None
    change = {"status": {"scale_status": part}}
    return Change(training_job.RESOURCE, job, change, COMPONENT, part="status")


def elastic_job_change(job: Manifest, decision: Decision) -> Change | None:
    """The replicas of an ElasticJob; a limit left out is written down, as it moves else."""
    spec = read_spec(elastic_job.ElasticJobSpec, job).spec
    if spec is None:
        return None
    size = max(spec.min_size, min(spec.max_size, decision.replicas))
    if size == spec.replicas:
        return None
    left_out = {
        name: limit
        for name, written, limit in (
            ("minReplicas", spec.min_replicas, spec.min_size),
            ("maxReplicas", spec.max_replicas, spec.max_size),
        )
        if written is None
    }
    change = {
        "metadata": {"annotations": given(size)},
        "spec": {**left_out, "replicaSpecs": {"Worker": {"replicas": size}}},
    }
    note = _resized(spec.replicas, size, decision.reason)
    return Change(elastic_job.RESOURCE, job, change, COMPONENT, note)


def train_job_change(
    record: Manifest, resource: Manifest | None, decision: Decision, now_s: float
) -> Change | None:
    """The number of workers that the master of a job of ours is asked for; 0 has it stand still.

    Args:
        record: What the job was submitted with.
        resource: What it was made from, whose events tell of it; None where there is none.
        decision: Of the policy.
        now_s: The moment, in seconds since the epoch.
    """
    try:
        spec, control = spec_of(record), control_of(record)
    except PlatformError:
        return None
    before, limits = size_of(spec, control), spec.num_workers
    size = max(limits.minimum, min(limits.maximum, decision.replicas))
    if size == before:
        return None
    wanted = JobControl(size, control.cancelled, decision.reason, autoscaled_s=now_s)
    note = _resized(before, size, decision.reason)
    return Change(CONFIGMAPS, record, _control(wanted), COMPONENT, note, told_of=resource)


def elastic_job_hold(job: Manifest, now_s: float, hold_s: float) -> Change | None:
    """Take note that a user has set the size of an ElasticJob; None where that is no news."""
    spec = read_spec(elastic_job.ElasticJobSpec, job).spec
    if spec is None or not is_news(job, spec.replicas):
        return None
    until_s = now_s + hold_s
    change = {"metadata": {"annotations": holding(spec.replicas, until_s)}}
    return Change(elastic_job.RESOURCE, job, change, COMPONENT, _held(spec.replicas, until_s))


def train_job_hold(
    record: Manifest, resource: Manifest | None, now_s: float, hold_s: float
) -> Change | None:
    """The same, of a job of ours that lets its size be chosen."""
    try:
        spec, control = spec_of(record), control_of(record)
    except PlatformError:
        return None
    if not spec.autoscale or control.cancelled or not is_control_news(control):
        return None
    until_s = now_s + hold_s
    note = _held(size_of(spec, control), until_s)
    change = _control(replace(control, held_until_s=until_s))
    return Change(CONFIGMAPS, record, change, COMPONENT, note, told_of=resource)


def _control(control: JobControl) -> dict[str, Any]:
    return {"data": {names.CONTROL_KEY: dump_control(control)}}


def _resized(before: int, size: int, reason: str) -> Note:
    return Note(AUTOSCALED, f"from {before} to {size} workers, {reason}")


def _held(size: int, until_s: float) -> Note:
    return Note(HELD, f"{size} workers, as a user has set them, until {time_text(until_s)}")


def waiting(text: str) -> Note:
    """Why a job does not get what it lacks."""
    return Note("Waiting", text, EventType.WARNING)


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
