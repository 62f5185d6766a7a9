"""The objects of one ElasticJob at one moment, in their roles."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from elastic.controller.kinds.elastic_job.objects import WORKER, Owner, store_name
from elastic.controller.kinds.pods import (
    INDEX_LABEL,
    index_of,
    name_of,
    replica_name,
    uid_of,
)
from elastic.controller.kinds.queueing import Queued
from elastic.controller.reconciling import Observed
from elastic.controller.resources.elastic_job import ElasticJobSpec, ElasticJobStatus, FailedPod
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest
from elastic.platforms.kubernetes.objects.queues import (
    GROUP_LABEL,
    TOTAL_ANNOTATION,
    QueueSystem,
)
from elastic.platforms.kubernetes.pods.states import (
    has_ended,
    has_succeeded,
    is_active,
    is_deleted,
    is_pending,
    is_ready,
)


@dataclass(frozen=True, slots=True)
class View:
    """What there is of a job.

    Attributes:
        owner: The job, as its objects need to know it.
        before: Its status as it was written last.
        workers: Pods by index, those beyond the wanted ones included.
        services: By name.
        store: The pod of its own store.
        members: All pods of the job's group in Kueue, those included that it only holds.
        pod_names: Of all pods.
        now_s: Seconds since the epoch.
    """

    job: Manifest
    owner: Owner
    before: ElasticJobStatus
    workers: Mapping[int, Manifest]
    services: Mapping[str, Manifest]
    store: Manifest | None
    now_s: float
    observed: Observed
    members: Sequence[Manifest] = ()
    pod_names: frozenset[str] = frozenset()

    @property
    def spec(self) -> ElasticJobSpec:
        return self.owner.spec

    def wanted(self) -> Iterator[tuple[int, Manifest | None]]:
        """The indexes that the job is to have, and the pods that are there.

        The lowest; but where one of those is lost for good, one that is there beyond them stays in
        its stead: a job that is scaled down must not fail for whom it has sent away itself.
        """
        places = range(self.spec.replicas)
        beyond = (
            index
            for index, pod in sorted(self.workers.items())
            if index >= len(places) and not is_deleted(pod) and (is_active(pod) or is_pending(pod))
        )
        num_lost = sum(self._is_lost(index) for index in places)
        for index in (*places, *islice(beyond, num_lost)):
            yield index, self.workers.get(index)

    def _is_lost(self, index: int) -> bool:
        """Whether its pod has failed and is not to be made anew."""
        pod = self.workers.get(index)
        return pod is not None and self.before.failed_pods.get(uid_of(pod)) is FailedPod.KEPT

    def wanted_pods(self, is_so: Callable[[Manifest], bool]) -> list[Manifest]:
        """Pods at these indexes of which something is the case."""
        return [pod for _, pod in self.wanted() if pod is not None and is_so(pod)]

    @property
    def num_active(self) -> int:
        return len(self.wanted_pods(is_active))

    @property
    def succeeded(self) -> tuple[int, ...]:
        """Indexes that have ended well, now or earlier."""
        now = {index for index, pod in self.wanted() if pod is not None and has_succeeded(pod)}
        earlier = {index for index in self.before.succeeded_workers if index < self.spec.replicas}
        return tuple(sorted(now | earlier))

    @property
    def is_enough(self) -> bool:
        """Whether so many have ended well that none needs to be made any more."""
        return len(self.succeeded) >= self.spec.min_size

    @property
    def can_meet(self) -> bool:
        """Whether workers that are made now find where they meet."""
        return not self.owner.has_own_store or (self.store is not None and is_ready(self.store))


def view_of(
    observed: Observed,
    spec: ElasticJobSpec,
    before: ElasticJobStatus,
    queued: Queued | None = None,
) -> View:
    """Sort what there is; what has none of a job's names is left alone."""
    job = observed.job
    name = name_of(job)
    pods = {name_of(pod): pod for pod in observed.children.get(PODS, ())}
    members = [pod for pod in pods.values() if _is_member(pod)]
    store = pods.get(store_name(name))
    is_there = store is not None and (is_active(store) or is_pending(store))
    store_uid = uid_of(store) if store and is_there else ""
    return View(
        job=job,
        owner=Owner(name, uid_of(job), spec, store_uid, _as_made(queued, members)),
        before=before,
        workers=_workers(name, pods.values()),
        services={name_of(each): each for each in observed.children.get(SERVICES, ())},
        store=store,
        now_s=observed.now_s,
        observed=observed,
        members=members,
        pod_names=frozenset(pods),
    )


def _workers(job: str, pods: Iterable[Manifest]) -> dict[int, Manifest]:
    """By index, the pod that counts: one that Kueue only holds is nothing any more."""
    workers: dict[int, Manifest] = {}
    for pod in pods:
        index = _index_of(pod, job)
        if index is None or _is_only_held(pod):
            continue
        if index not in workers or is_deleted(workers[index]):
            workers[index] = pod
    return workers


def _index_of(pod: Manifest, job: str) -> int | None:
    """The index of a worker's pod; one that took another's place has a number behind its name."""
    name = name_of(pod)
    label = str((pod["metadata"].get("labels") or {}).get(INDEX_LABEL) or "")
    if _is_member(pod) and label.isdecimal():
        is_its = name.startswith(f"{replica_name(job, WORKER, int(label))}-")
        return int(label) if is_its else index_of(name, job, WORKER)
    return index_of(name, job, WORKER)


def _is_member(pod: Manifest) -> bool:
    return GROUP_LABEL in (pod["metadata"].get("labels") or {})


def _is_only_held(pod: Manifest) -> bool:
    """Whether nothing of a pod runs or will, and Kueue waits for who takes its place."""
    is_over = has_ended(pod) or not (pod.get("spec") or {}).get("nodeName")
    return _is_member(pod) and is_deleted(pod) and is_over


def _as_made(queued: Queued | None, members: Sequence[Manifest]) -> Queued | None:
    """Of a group in Kueue the size stays: all its pods have to tell the same."""
    if queued is None or queued.system is not QueueSystem.KUEUE or not members:
        return queued
    told = (members[0]["metadata"].get("annotations") or {}).get(TOTAL_ANNOTATION, "")
    if not told.isdecimal():
        return queued
    return replace(queued, gang=replace(queued.gang, min_count=int(told)))
