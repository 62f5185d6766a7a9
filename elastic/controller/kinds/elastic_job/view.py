"""The objects of one ElasticJob at one moment, in their roles."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from elastic.controller.kinds.elastic_job.objects import WORKER, Owner, store_name
from elastic.controller.kinds.pods import (
    has_succeeded,
    index_of,
    is_active,
    is_pending,
    is_ready,
    name_of,
    uid_of,
)
from elastic.controller.reconciling import Observed
from elastic.controller.resources.elastic_job import ElasticJobSpec, ElasticJobStatus, FailedPod
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest
from elastic.platforms.kubernetes.pods.containers import is_deleted


@dataclass(frozen=True, slots=True)
class View:
    """What there is of a job.

    Attributes:
        owner: The job, as its objects need to know it.
        before: Its status as it was written last.
        workers: Pods by index, those beyond the wanted ones included.
        services: By name.
        store: The pod of its own store.
        now_s: Seconds since the epoch.
    """

    job: Manifest
    owner: Owner
    before: ElasticJobStatus
    workers: Mapping[int, Manifest]
    services: Mapping[str, Manifest]
    store: Manifest | None
    now_s: float

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


def view_of(observed: Observed, spec: ElasticJobSpec, before: ElasticJobStatus) -> View:
    """Sort what there is; what has none of a job's names is left alone."""
    job = observed.job
    name = name_of(job)
    pods = {name_of(pod): pod for pod in observed.children.get(PODS, ())}
    indexes = {index_of(each, name, WORKER): pod for each, pod in pods.items()}
    store = pods.get(store_name(name))
    is_there = store is not None and (is_active(store) or is_pending(store))
    return View(
        job=job,
        owner=Owner(name, uid_of(job), spec, uid_of(store) if store and is_there else ""),
        before=before,
        workers={index: pod for index, pod in indexes.items() if index is not None},
        services={name_of(each): each for each in observed.children.get(SERVICES, ())},
        store=store,
        now_s=observed.now_s,
    )
