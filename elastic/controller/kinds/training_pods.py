"""What the pods of a TrainingJob tell, with the ReplicaSets and the Job that own them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from elastic.controller.kinds.training_children import LABELS, RESOURCES, name_of, size_path
from elastic.controller.resources.training_job import Role, RoleStatus, TrainingJobStatus
from elastic.platforms.kubernetes.api.resources import PODS, Manifest, Resource
from elastic.platforms.kubernetes.pods.states import (
    RUNNING,
    SUCCEEDED,
    conditions_of,
    ends_of,
    has_ended,
    has_failed,
    holds,
    is_deleted,
    joined,
    outside_cause,
    phase_of,
)

LEAVING: Final = "Terminating"
"""What Kubernetes has no phase for, though its tools say so."""

_MAX_FAILED: Final = 200
"""A trainer that fails again and again leaves a pod each time, and a status has bounds."""
_MAX_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Group:
    """One role of a job.

    Attributes:
        owner: The ReplicaSet or Job; None where there is none.
        pods: Those of this very owner, the oldest first.
        before: What was told of the pods last.
    """

    role: Role
    owner: Manifest | None
    pods: Sequence[Manifest] = ()
    before: RoleStatus | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether the owner is about to be gone, so that its name cannot be taken yet."""
        return self.owner is not None and is_deleted(self.owner)

    @property
    def size(self) -> int:
        """How many pods the owner is to have."""
        return 0 if self.owner is None else int(self.owner["spec"].get(size_path(self.role), 1))

    @property
    def active(self) -> list[Manifest]:
        """Pods that run, or are about to; a node that does not answer ends none of them."""
        return [pod for pod in self.pods if not has_ended(pod) and not is_deleted(pod)]

    @property
    def running(self) -> list[Manifest]:
        """Pods that run."""
        return [pod for pod in self.active if phase_of(pod) == RUNNING]

    @property
    def failed(self) -> list[Manifest]:
        """Pods that failed by themselves; one that was asked to end was not wanted any more."""
        return [pod for pod in self.pods if has_failed(pod)]

    @property
    def num_succeeded(self) -> int:
        """Pods that ended well by themselves; also those that were cleaned up since.

        A program may well end with 0 when it is asked to go. The Job counts that as a success, so
        that of its own count only as much is believed as was seen before.
        """
        seen = {name for name, state in self.states.items() if state == "Succeeded"}
        if self.before is None:
            return len(seen)
        states = self.before.resource_states.items()
        told = {name for name, state in states if state == "Succeeded"}
        # Those that had been cleaned up by then have no name any more.
        known = self.before.succeeded - len(told) + len(told | seen)
        # An earlier Job of this name may be what was told of; this one may lag behind its pods.
        return max(len(seen), min(known, self._counted + len(seen)))

    @property
    def starts_none(self) -> bool:
        """Whether Kubernetes starts no pod any more: one has ended well, by itself or not."""
        return self._counted > 0 or any(phase_of(pod) == SUCCEEDED for pod in self.pods)

    @property
    def _counted(self) -> int:
        status: Mapping[str, Any] = (self.owner or {}).get("status") or {}
        return int(status.get("succeeded") or 0) if self.role is Role.TRAINER else 0

    @property
    def num_ready(self) -> int:
        """Pods that run and answer."""
        return sum(holds(pod, "Ready") for pod in self.running)

    @property
    def is_complete(self) -> bool:
        """Whether Kubernetes has seen the Job's end, a good one."""
        return any(holds(self.owner, type_) for type_ in ("Complete", "SuccessCriteriaMet"))

    @property
    def job_failure(self) -> str:
        """Why Kubernetes has given up the Job; empty where it has not."""
        for type_ in ("Failed", "FailureTarget"):
            if holds(self.owner, type_):
                told = conditions_of(self.owner)[type_]
                return joined(told.get("reason"), told.get("message")) or type_
        return ""

    @property
    def states(self) -> dict[str, str]:
        """What each pod does, by its name: its phase, as long as it was not asked to go."""
        failed = [str(pod["metadata"]["name"]) for pod in self.failed]
        states = {
            str(pod["metadata"]["name"]): LEAVING if is_deleted(pod) else phase_of(pod)
            for pod in self.pods
        }
        for name in failed[:-_MAX_FAILED]:
            del states[name]
        return dict(sorted(states.items()))


Groups: TypeAlias = Mapping[Role, Group]
"""All roles of a job, whether there is anything of them or not."""


def groups_of(
    job: Manifest, children: Mapping[Resource, Sequence[Manifest]], status: TrainingJobStatus
) -> Groups:
    """What there is of a job.

    Args:
        status: As it was written last.
    """
    name = str(job["metadata"]["name"])
    before = {each.training_resource_type: each for each in status.replica_statuses}
    return {role: _group(name, role, children, before.get(role)) for role in Role}


def _group(
    job: str,
    role: Role,
    children: Mapping[Resource, Sequence[Manifest]],
    before: RoleStatus | None,
) -> Group:
    owners = children.get(RESOURCES[role], ())
    owner = next((o for o in owners if o["metadata"]["name"] == name_of(job, role)), None)
    if owner is None:
        return Group(role, None)
    # An earlier owner of that name may have left some, which go with it.
    pods = [
        pod
        for pod in children.get(PODS, ())
        if (pod["metadata"].get("labels") or {}).get(LABELS[role]) == job
        and _controller_uid(pod) == owner["metadata"].get("uid")
    ]
    pods.sort(key=lambda pod: str(pod["metadata"].get("creationTimestamp") or ""))
    return Group(role, owner, pods, before)


def _controller_uid(pod: Manifest) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), None)


def failures(pods: Sequence[Manifest]) -> str:
    """Which pods failed, on which nodes, and why, for people."""
    told = "; ".join(_failure(pod) for pod in pods[:_MAX_NAMED])
    more = len(pods) - _MAX_NAMED
    return told if more <= 0 else f"{told}; and {more} more"


def _failure(pod: Manifest) -> str:
    node = (pod.get("spec") or {}).get("nodeName")
    where = f" on node {node}" if node else ""
    return f"pod {pod['metadata']['name']}{where}: {_why_failed(pod)}"


def _why_failed(pod: Manifest) -> str:
    """The cluster's own words, else the containers'."""
    cause = outside_cause(pod)
    if cause is not None:
        return cause
    for end in ends_of(pod):
        code, reason = end.get("exitCode"), str(end.get("reason") or "")
        if code:
            # `Error` says no more than that the code is not 0.
            told = f"{reason}, " if reason not in {"", "Error"} else ""
            return f"{told}exit code {code}"
    return "ended without a reason"
