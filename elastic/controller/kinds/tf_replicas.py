"""The replicas of a TFJob as they are seen: from pods, or from SharePods that stand for them. Pure.

The container named `tensorflow` decides how a replica has ended: others may run on beside it, as
the one that KubeShare adds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from elastic.controller.kinds.pods import CLUSTER_CODE, index_of, name_of, uid_of
from elastic.controller.reconciling import Observed
from elastic.controller.resources.common import RestartPolicy, seconds_of
from elastic.controller.resources.tf_job import CONTAINER, SHARE_PODS, Role
from elastic.platforms.kubernetes.api.resources import PODS, Manifest, Resource
from elastic.platforms.kubernetes.pods.states import (
    RUNNING,
    SUCCEEDED,
    clusters_doing,
    end_of,
    has_ended,
    is_deleted,
    phase_of,
    status_of,
)


class Phase(StrEnum):
    """Pending, Running, ended in one way or the other; or between two runs in one pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod of a job, or one SharePod.

    Attributes:
        role: None for one that is none of the job's by its name.
        node: Empty before it has one.
        is_deleted: It was asked to go, and only occupies its name and its room.
        is_over: None of its containers runs any more.
        code: The exit code of the newest run that is over; None where there is none.
        cause: The cluster's own words for having ended it; None where it did not.
        restarts: Of the container, in this pod.
        has_exited_well: Also in a run before, where the pod is restarted whatever happens.
        ran_s: How long the newest run took that is over; 0 where it is not known.
        ended_s: When that was, in seconds since the epoch.
    """

    resource: Resource
    name: str
    uid: str
    role: Role | None
    index: int
    node: str
    is_deleted: bool
    is_over: bool
    phase: Phase
    code: int | None
    cause: str | None
    restarts: int
    has_exited_well: bool
    ran_s: float
    ended_s: float

    @property
    def has_failed(self) -> bool:
        """Whether it is to be replaced, or fails the job."""
        return self.phase is Phase.FAILED and not self.is_deleted

    @property
    def bad_ends(self) -> int:
        """How often it has ended badly, the last end included."""
        return self.restarts + (self.phase is Phase.FAILED)

    @property
    def words(self) -> str:
        """How it has ended, for people."""
        how = self.cause or (
            "ended without a reason" if self.code is None else f"exited with code {self.code}"
        )
        return f"{self.name} on {self.node} {how}" if self.cause is None else f"{self.name}: {how}"

    def is_free(self, policy: RestartPolicy) -> bool:
        """Whether its failure is the cluster's doing, which costs a job nothing."""
        is_signal = self.code is not None and self.code >= CLUSTER_CODE
        return self.cause is not None or (policy is RestartPolicy.EXIT_CODE and is_signal)

    def is_fatal(self, policy: RestartPolicy) -> bool:
        """Whether its failure is one that no replacement follows."""
        may_replace = policy in {RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE}
        return self.has_failed and not may_replace and not self.is_free(policy)


def replicas_of(observed: Observed) -> tuple[Replica, ...]:
    """All that a job has, by name; not the pods that KubeShare made for its SharePods."""
    job = name_of(observed.job)
    pods = (pod for pod in observed.children.get(PODS, ()) if not _is_of_share_pod(pod))
    found = [_replica(PODS, pod, pod.get("status") or {}, job) for pod in pods]
    found += [
        _replica(SHARE_PODS, each, (each.get("status") or {}).get("PodStatus") or {}, job)
        for each in observed.children.get(SHARE_PODS, ())
    ]
    return tuple(sorted(found, key=lambda replica: replica.name))


def _is_of_share_pod(pod: Manifest) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("kind") == SHARE_PODS.kind for owner in owners)


def _replica(resource: Resource, item: Manifest, status: Mapping[str, Any], job: str) -> Replica:
    name, spec = name_of(item), item["spec"]
    pod = {"metadata": item["metadata"], "status": status}
    role, index = _place_in_job(name, job)
    entry = status_of(pod, CONTAINER)
    ends = [end for run in ("state", "lastState") if (end := end_of(entry, run))]
    newest = ends[0] if ends else {}
    phase = _phase(pod, entry, str(spec.get("restartPolicy") or "Always"))
    began_s, ended_s = (_seconds(newest.get(key)) for key in ("startedAt", "finishedAt"))
    return Replica(
        resource=resource,
        name=name,
        uid=uid_of(item),
        role=role,
        index=index,
        node=str(spec.get("nodeName") or ""),
        is_deleted=is_deleted(item),
        is_over=has_ended(pod),
        phase=phase,
        code=newest.get("exitCode"),
        cause=clusters_doing(pod) if phase is Phase.FAILED else None,
        restarts=int(entry.get("restartCount") or 0),
        has_exited_well=any(end.get("exitCode") == 0 for end in ends),
        ran_s=0.0 if began_s is None or ended_s is None else max(0.0, ended_s - began_s),
        ended_s=ended_s or _seconds(item["metadata"].get("creationTimestamp")) or 0.0,
    )


def _place_in_job(name: str, job: str) -> tuple[Role | None, int]:
    for role in Role:
        index = index_of(name, job, role.task_type)
        if index is not None:
            return role, index
    return None, 0


def _seconds(text: str | None) -> float | None:
    return None if text is None else seconds_of(text)


def _phase(pod: Manifest, entry: Mapping[str, Any], restart_policy: str) -> Phase:
    """How a replica is.

    Args:
        pod: Its metadata and status.
        entry: What it tells of the container; empty before it does.
        restart_policy: Of the pod.
    """
    is_over, ended = has_ended(pod), end_of(entry)
    if ended:
        if ended.get("exitCode") == 0:
            goes_on = restart_policy == "Always" and not is_over
            return Phase.PENDING if goes_on else Phase.SUCCEEDED
        goes_on = restart_policy != "Never" and not is_over
        return Phase.RESTARTING if goes_on else Phase.FAILED
    if is_over:
        return Phase.SUCCEEDED if phase_of(pod) == SUCCEEDED else Phase.FAILED
    before = end_of(entry, "lastState").get("exitCode")
    if "waiting" in (entry.get("state") or {}):
        return Phase.RESTARTING if before else Phase.PENDING
    return Phase.RUNNING if phase_of(pod) == RUNNING else Phase.PENDING


def of_role(replicas: Iterable[Replica], role: Role) -> list[Replica]:
    """Those of one role that were not asked to go."""
    return [each for each in replicas if each.role is role and not each.is_deleted]
