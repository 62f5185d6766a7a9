"""Which policy decides on which kinds, and what is to be written for what it decides. Pure.

A plan is made of what there is, and of nothing else: whoever writes it may fail half-way, and the
next one is made of what has come of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elastic.controller.autoscaling import resizing
from elastic.controller.autoscaling.seating import tf_job_change
from elastic.controller.reconciling import Change, Overview
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.controller.snapshots.job_kinds import RESOURCES
from elastic.controller.snapshots.reading import TRAIN_JOBS, Objects, snapshot_of
from elastic.controller.snapshots.train_jobs import is_record, kind_of
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, Manifest, Resource
from elastic.platforms.kubernetes.objects.manifests import submission_of
from elastic.platforms.kubernetes.objects.names import JOB_LABEL
from elastic.policy.cluster.plan import Decision, Policy

PERIOD_S: Final = 5.0
HOLD_S: Final = 600.0
"""How long a size that a user has set is left alone."""

SCALED: Final = frozenset({"trainingjob", "elasticjob", TRAIN_JOBS})
"""The kinds whose pods Kubernetes places; the others are placed by a scheduler of their own."""

RESIZED_SPECS: Final = (elastic_job.RESOURCE,)
"""Types whose spec has the size; that of the others is in their status, or in a ConfigMap."""


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
        noted: set[str] = set()
        for share in self._shares:
            plan = share.policy.plan(snapshot_of(_of_kinds(seen.objects, share.kinds)))
            for decision in plan.decisions:
                changes.extend(_changes(seen, decision))
            noted |= {note.job for note in plan.notes}
            new = (note for note in plan.notes if note.job not in self._waiting)
            changes.extend(_waiting(seen, note.job, note.text) for note in new)
        self._waiting = noted
        return changes

    def _holds(self, seen: _Seen) -> Iterator[Change]:
        kinds = frozenset().union(*(share.kinds for share in self._shares))
        now_s = seen.objects.now_s
        for target, resource in seen.jobs.values():
            found = None
            if target["kind"] == CONFIGMAPS.kind and TRAIN_JOBS in kinds:
                found = resizing.train_job_hold(target, resource, now_s, self._hold_s)
            elif target["kind"] == elastic_job.RESOURCE.kind and "elasticjob" in kinds:
                found = resizing.elastic_job_hold(target, now_s, self._hold_s)
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
    name = str(record["metadata"]["labels"][JOB_LABEL])
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
            change = resizing.training_job_change(job, decision, now_s)
        case elastic_job.RESOURCE.kind:
            change = resizing.elastic_job_change(job, decision)
        case tf_job.RESOURCE.kind:
            change = tf_job_change(job, decision, _neighbours(seen.objects, job), now_s)
        case CONFIGMAPS.kind:
            change = resizing.train_job_change(job, resource, decision, now_s)
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
        resizing.COMPONENT,
        resizing.waiting(text),
        told_of=resource,
    )


def _named(item: Manifest, resource: Resource) -> Manifest:
    """An item of a list, which leaves out what all of it have in common."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **item}


def _key(kind: str, job: Manifest) -> str:
    return f"{kind}/{'/'.join(_place(job))}"


def _place(item: Manifest) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])
