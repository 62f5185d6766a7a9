"""The objects of an ElasticJob: its workers' pods and services, and the store where they meet.

First as they are made, then those of one job at one moment, in their roles (`View`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, Final

from elastic.controller.kinds.common import (
    INDEX_LABEL,
    Queued,
    index_of,
    name_of,
    pod_restart_policy,
    replica_labels,
    replica_name,
    uid_of,
)
from elastic.controller.reconciling import Observed
from elastic.controller.resources.elastic_job import (
    GROUP,
    ElasticJobSpec,
    ElasticJobStatus,
    FailedPod,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest
from elastic.platforms.kubernetes.objects.names import (
    GROUP_LABEL,
    TOTAL_ANNOTATION,
    Part,
    QueueSystem,
    needs_own_name,
    pod_additions,
)
from elastic.platforms.kubernetes.pods import (
    has_ended,
    has_succeeded,
    is_active,
    is_deleted,
    is_pending,
    is_ready,
)

WORKER: Final = "worker"
STORE: Final = "rdzv"

STORE_PORT: Final = 29400
"""torch's own default for stores of rendezvous."""

MIN_ANNOTATION: Final = f"{GROUP}/min-size"
MAX_ANNOTATION: Final = f"{GROUP}/max-size"
ENDPOINT_ANNOTATION: Final = f"{GROUP}/rdzv-endpoint"
STORE_ANNOTATION: Final = f"{GROUP}/rdzv-store"
"""The uid of the store's pod that a worker was made for; torch's agents never change it."""

MAX_RESTARTS: Final = 100
"""Of the training process within one pod.

Each loss of another worker costs an agent one, and with none left it ends and closes the rendezvous
for all. A script that always fails is to end its pod some day, so there is a bound.
"""

JOIN_TIMEOUT_S: Final = 30 * 24 * 3600
"""How long an agent waits for others.

After torch's own 10 minutes it would end and close the rendezvous for ever, though a job may well
wait longer for room.
"""

_ETCD_PORT: Final = ":2379"

# `localhost`: the store answers at every address, and is its own first client. As the first process
# of its container it would not hear that it is to end.
_STORE_PROGRAM: Final = """\
import datetime, signal, sys
from torch.distributed import TCPStore
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
store = TCPStore("localhost", {port}, is_master=True, wait_for_workers=False,
                 timeout=datetime.timedelta(seconds=60))
print("the rendezvous store answers at port {port}", flush=True)
while True:
    signal.pause()
"""

_FROM_TEMPLATE: Final = (
    "imagePullSecrets",
    "nodeSelector",
    "tolerations",
    "schedulerName",
    "priorityClassName",
    "runtimeClassName",
    "securityContext",
    "serviceAccountName",
)
"""What the store's pod has of a worker's: it needs the same image, and may go where workers go."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A job, as its objects need to know it.

    Attributes:
        store_uid: Of the pod of its own store, or empty where a user has named an endpoint.
        queued: How its pods wait in a queue; None where they wait in none.
    """

    name: str
    uid: str
    spec: ElasticJobSpec
    store_uid: str = ""
    queued: Queued | None = None

    @property
    def has_own_store(self) -> bool:
        return self.spec.rdzv_endpoint is None

    @property
    def endpoint(self) -> str:
        """Where the workers meet."""
        return self.spec.rdzv_endpoint or f"{store_name(self.name)}:{STORE_PORT}"


def store_name(job: str) -> str:
    """Of the pod of a job's own store and of its service."""
    return f"{job}-{STORE}"


def worker_pod(owner: Owner, index: int, taken: Collection[str] = ()) -> Manifest:
    """The pod of one worker, as the template has it, with what makes it this one.

    Args:
        owner: The job.
        index: Of the worker.
        taken: Names of pods that are there.
    """
    template = owner.spec.worker.template
    metadata = template.get("metadata") or {}
    spec = deepcopy(template["spec"])
    spec["restartPolicy"] = pod_restart_policy(owner.spec.worker.restart_policy)
    for container in spec["containers"]:
        _add_environment(container, environment(owner, container))
    labels = replica_labels(owner.name, GROUP, WORKER, index)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _free_name(owner, index, taken),
            "labels": (metadata.get("labels") or {}) | labels,
            "annotations": (metadata.get("annotations") or {}) | _made_for(owner),
        },
        "spec": spec,
    }
    return _queued(owner, pod, _part(owner, index))


def _part(owner: Owner, index: int) -> Part:
    is_needed = owner.queued is not None and index < owner.queued.gang.min_count
    return Part.MINIMUM if is_needed else Part.BEYOND


def _queued(owner: Owner, pod: Manifest, part: Part) -> Manifest:
    queued = owner.queued
    return pod if queued is None else pod_additions(queued.system, queued.gang, part).to(pod)


def _free_name(owner: Owner, index: int, taken: Collection[str]) -> str:
    """The name of a worker's pod; another one where a queue still holds the pod before it."""
    name, queued = replica_name(owner.name, WORKER, index), owner.queued
    if queued is None or not needs_own_name(queued.system, _part(owner, index)):
        return name
    names = (name if number == 0 else f"{name}-{number}" for number in count())
    return next(each for each in names if each not in taken)


def worker_service(owner: Owner, index: int) -> Manifest:
    """The service by which the others find one worker by its host name."""
    labels = replica_labels(owner.name, GROUP, WORKER, index)
    return _headless(replica_name(owner.name, WORKER, index), labels)


def store_service(owner: Owner) -> Manifest:
    """The service by which workers find the store."""
    service = _headless(store_name(owner.name), replica_labels(owner.name, GROUP, STORE))
    service["spec"]["ports"] = [{"name": STORE, "port": STORE_PORT}]
    return service


def store_pod(owner: Owner) -> Manifest:
    """The pod of the store: torch's own, from the workers' image, which has torch.

    It is never restarted in place: what it knew is lost with it, so its end has to be seen.
    """
    template = owner.spec.worker.template["spec"]
    worker = template["containers"][0]
    container = {
        "name": STORE,
        "image": worker.get("image"),
        "command": ["python3", "-c", _STORE_PROGRAM.format(port=STORE_PORT)],
        "ports": [{"name": STORE, "containerPort": STORE_PORT}],
        "readinessProbe": {"tcpSocket": {"port": STORE_PORT}, "periodSeconds": 2},
        "resources": {
            "requests": {"cpu": "50m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        },
    }
    if "imagePullPolicy" in worker:
        container["imagePullPolicy"] = worker["imagePullPolicy"]
    copied = {key: deepcopy(template[key]) for key in _FROM_TEMPLATE if key in template}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": store_name(owner.name),
            "labels": replica_labels(owner.name, GROUP, STORE),
        },
        "spec": copied
        | {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }
    # Alone, like a master: the workers are made when it is there.
    return _queued(owner, pod, Part.MASTER)


def environment(owner: Owner, container: Mapping[str, Any]) -> dict[str, str]:
    """What a worker's container is told: the job's own variables, and torchrun's."""
    spec = owner.spec
    settings = f"join_timeout={JOIN_TIMEOUT_S}"
    return {
        "RDZV_ENDPOINT": owner.endpoint,
        "JOB_ID": owner.name,
        "SIZE": str(spec.replicas),
        "MIN_SIZE": str(spec.min_size),
        "MAX_SIZE": str(spec.max_size),
        "PET_RDZV_BACKEND": "etcd-v2" if _is_etcd(owner.endpoint) else "c10d",
        "PET_RDZV_ENDPOINT": owner.endpoint,
        # An etcd of the user's keeps the rendezvous of an earlier job of this name, closed.
        "PET_RDZV_ID": f"{owner.name}-{owner.uid}",
        "PET_RDZV_CONF": f"is_host=0,{settings}" if owner.has_own_store else settings,
        "PET_NNODES": f"{spec.min_size}:{spec.max_size}",
        "PET_NPROC_PER_NODE": str(_num_gpus(container)),
        "PET_MAX_RESTARTS": str(MAX_RESTARTS),
        # Agents that share one store publish its address in their first round only: those that
        # join later would wait a minute for it in vain, and fail.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }


def is_outdated(pod: Manifest, owner: Owner, num_active: int) -> bool:
    """Whether a worker that runs cannot take part in the job as it is now.

    Its agent keeps the limits that it was started with. One that knows of fewer workers than are
    wanted never lets the others in; one that knows of more than it needs now waits for them while
    there are too few.
    """
    made_for = pod["metadata"].get("annotations") or {}
    least, most = (made_for.get(key, "") for key in (MIN_ANNOTATION, MAX_ANNOTATION))
    if made_for.get(ENDPOINT_ANNOTATION, owner.endpoint) != owner.endpoint:
        return True
    if most.isdecimal() and int(most) < owner.spec.replicas:
        return True
    is_lower = least.isdecimal() and int(least) > owner.spec.min_size
    return is_lower and num_active < int(least)


def is_cut_off(pod: Manifest, owner: Owner) -> bool:
    """Whether the store that a worker was made for is no more."""
    made_for = pod["metadata"].get("annotations") or {}
    return owner.has_own_store and made_for.get(STORE_ANNOTATION, "") != owner.store_uid


def _made_for(owner: Owner) -> dict[str, str]:
    made_for = {
        MIN_ANNOTATION: str(owner.spec.min_size),
        MAX_ANNOTATION: str(owner.spec.max_size),
        ENDPOINT_ANNOTATION: owner.endpoint,
    }
    return made_for | ({STORE_ANNOTATION: owner.store_uid} if owner.has_own_store else {})


def _headless(name: str, selector: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": dict(selector)},
        "spec": {
            "clusterIP": "None",
            "selector": selector,
            # Workers look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
        },
    }


def _add_environment(container: dict[str, Any], variables: Mapping[str, str]) -> None:
    """What the template sets is never changed."""
    given = container.get("env") or []
    # No set: whatever stands there, it is the API server that refuses it.
    names = [entry.get("name") for entry in given]
    added = [{"name": k, "value": v} for k, v in variables.items() if k not in names]
    container["env"] = [*given, *added]


def _is_etcd(endpoint: str) -> bool:
    host = endpoint.rsplit("//", maxsplit=1)[-1]
    return host.endswith(_ETCD_PORT) or "etcd" in host.split(".", maxsplit=1)[0]


def _num_gpus(container: Mapping[str, Any]) -> int:
    """One process for each, at least one."""
    limits = (container.get("resources") or {}).get("limits")
    if not isinstance(limits, Mapping):
        return 1
    gpus = [str(number) for name, number in limits.items() if str(name).endswith("/gpu")]
    return max(1, sum(int(each) for each in gpus if each.isdecimal()))


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
