"""TFJob: distributed TensorFlow, of which the number of workers may change while it runs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from pydantic import Field, ValidationError

from elastic.controller.resources.common import (
    CARD_ID,
    CleanPodPolicy,
    Condition,
    Count,
    Fields,
    PodParts,
    PodTemplate,
    Reading,
    Replicas,
    ReplicaStatus,
    RestartPolicy,
    RunPolicy,
    Time,
    parts_of,
    problem_of,
    read_spec,
)
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.spec.values import NANO

RESOURCE: Final = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")

SHARE_PODS: Final = Resource("kubeshare.nthu", "v1", "sharepods", "SharePod")
"""Pods with a part of a GPU, where KubeShare is installed."""

CONTAINER: Final = "tensorflow"
"""The container that decides how a replica has ended."""

PORT_NAME: Final = "tfjob-port"
DEFAULT_PORT: Final = 2222


class Role(StrEnum):
    """What a replica is to its job, as the spec names it; `Master` is the old name of `Chief`."""

    CHIEF = "Chief"
    MASTER = "Master"
    PS = "PS"
    WORKER = "Worker"
    EVALUATOR = "Evaluator"

    @property
    def task_type(self) -> str:
        """As TensorFlow, names and labels have it."""
        return self.value.lower()


SINGLE: Final = frozenset({Role.CHIEF, Role.MASTER, Role.EVALUATOR})
"""Roles of which TensorFlow knows one replica at most."""


class TFReplicaSpec(Fields):
    """The replicas of one role."""

    replicas: Replicas = Field(1, description="How many there are; of workers, at first.")
    restart_policy: RestartPolicy = Field(
        RestartPolicy.NEVER,
        description="What follows the end of a replica. Under ExitCode, codes of 128 and above are "
        "the cluster's doing and the replica is replaced; any other fails the job.",
    )
    template: PodTemplate = Field(
        description="The pods; the container named tensorflow decides how a replica has ended."
    )


class TFReplicaSpecs(Fields):
    """The roles of a job; at least `Worker` or `Chief`."""

    ps: TFReplicaSpec | None = Field(None, alias="PS", description="Parameter servers.")
    worker: TFReplicaSpec | None = Field(None, alias="Worker", description="Workers.")
    chief: TFReplicaSpec | None = Field(
        None, alias="Chief", description="Decides success in the place of worker 0."
    )
    master: TFReplicaSpec | None = Field(
        None, alias="Master", description="The chief, by its old name."
    )
    evaluator: TFReplicaSpec | None = Field(
        None, alias="Evaluator", description="Evaluates checkpoints beside the training."
    )


class TFJobSpec(RunPolicy):
    """A job with its roles. What several fields say together is checked where it is read."""

    clean_pod_policy: CleanPodPolicy = Field(
        CleanPodPolicy.RUNNING,
        description="Which pods are removed when the job has ended: none, those that still run, "
        "or all.",
    )
    min_instances: Replicas | None = Field(
        None,
        alias="min-instances",
        description="The fewest workers with which the job runs; Worker.replicas where left out.",
    )
    max_instances: Replicas | None = Field(
        None,
        alias="max-instances",
        description="The most workers that the job may have; Worker.replicas where left out.",
    )
    tf_replica_specs: TFReplicaSpecs = Field(description="What runs, by role.")

    @property
    def roles(self) -> Mapping[Role, TFReplicaSpec]:
        """Those that the job has, in the order in which they are placed."""
        specs = self.tf_replica_specs
        written = {
            Role.CHIEF: specs.chief,
            Role.MASTER: specs.master,
            Role.PS: specs.ps,
            Role.WORKER: specs.worker,
            Role.EVALUATOR: specs.evaluator,
        }
        return {role: spec for role, spec in written.items() if spec is not None}

    @property
    def worker_range(self) -> tuple[int, int, int]:
        """The fewest workers, those at first, and the most; all 0 in a job without workers."""
        worker = self.tf_replica_specs.worker
        if worker is None:
            return 0, 0, 0
        first = worker.replicas
        return self.min_instances or first, first, self.max_instances or first


class SeatStatus(Fields):
    """Where a replica is to be."""

    node: str = Field(description="The name of its node.")
    card: str | None = Field(None, description="The id of the GPU of which it has a part.")


class TFJobStatus(Fields):
    """What is known of a job; all that its controller remembers is here."""

    conditions: tuple[Condition, ...] = Field(
        (),
        description="Created, Scheduled, Running, Restarting, Succeeded, Failed; the newest that "
        "has come to hold is last.",
    )
    replica_statuses: dict[str, ReplicaStatus] = Field({}, description="By role.")
    start_time: Time | None = Field(None, description="When its pods were first placed.")
    completion_time: Time | None = Field(None, description="When it had succeeded or failed.")
    replicas: Count = Field(0, description="Workers whose pods are there.")
    size: Count | None = Field(
        None, description="Workers that the job is to have; none before it is placed."
    )
    size_asked: Count | None = Field(
        None, description="The Worker.replicas that `size` was chosen for."
    )
    seats: dict[str, SeatStatus] = Field(
        {},
        description="By the names of their pods, where replicas are to be; where a scheduler "
        "decides on all jobs together.",
    )
    last_scale_time: Time | None = Field(
        None, description="When such a scheduler last gave the job a size or places."
    )
    restarts: Count = Field(
        0, description="Restarts and replacements that were counted against backoffLimit."
    )
    ends: dict[str, int] = Field(
        {}, description="How often each pod that is there has ended badly, by its uid, as counted."
    )
    failures: dict[str, Count] = Field(
        {}, description="Failures in a row of each pod that was replaced, by its name."
    )
    observed_generation: int | None = Field(
        None, description="Of the spec of which warnings were told."
    )


def read_status(job: Manifest) -> TFJobStatus:
    """The status; an empty one where it is not ours, or was changed by hand beyond reading."""
    try:
        return TFJobStatus.model_validate(job.get("status") or {})
    except ValidationError:
        return TFJobStatus.model_validate({})


def read_tf_job(job: Manifest) -> Reading[TFJobSpec]:
    """The spec of a job that can be run, or what is wrong; never raises for what a user wrote."""
    reading = read_spec(TFJobSpec, job)
    if reading.spec is None:
        return reading
    problem = next(_problems(reading.spec, str(job["metadata"]["name"])), "")
    return replace(reading, spec=None, problem=problem) if problem else reading


def _problems(spec: TFJobSpec, name: str) -> Iterator[str]:
    """What is wrong beyond single fields: the field, its value, and what it should be."""
    yield from _of_name(spec, name)
    yield from _of_roles(spec)
    yield from _of_range(spec)
    for role, replicas in spec.roles.items():
        yield from _of_template(f"spec.tfReplicaSpecs.{role}.template", replicas.template)


_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME: Final = 63


def _of_name(spec: TFJobSpec, name: str) -> Iterator[str]:
    """A service has the name of each replica, which is to be part of a DNS name."""
    if not _NAME.fullmatch(name):
        yield (
            f"metadata.name={name!r}: services are named after it, so it has to begin with a "
            "lower case letter and to have only those, digits and - after it"
        )
    for role, replicas in spec.roles.items():
        most = spec.worker_range[2] if role is Role.WORKER else replicas.replicas
        last = f"{name}-{role.task_type}-{most - 1}"
        if len(last) > _MAX_NAME:
            yield (
                f"metadata.name={name!r}: a service is to be named {last}, which has {len(last)} "
                f"characters of {_MAX_NAME}: choose a shorter name"
            )


def _of_roles(spec: TFJobSpec) -> Iterator[str]:
    roles, at = spec.roles, "spec.tfReplicaSpecs"
    if Role.CHIEF in roles and Role.MASTER in roles:
        yield f"{at}.Master is the old name of Chief, and {at}.Chief is there too: keep one of them"
    if not {Role.WORKER, Role.CHIEF, Role.MASTER} & roles.keys():
        there = ", ".join([*roles, *(spec.tf_replica_specs.model_extra or {})]) or "nothing"
        yield f"{at} has {there}: add Worker or Chief, whose success is that of the job"
    for role in SINGLE & roles.keys():
        if roles[role].replicas != 1:
            yield f"{at}.{role}.replicas={roles[role].replicas}: there can be one {role} only"


def _of_range(spec: TFJobSpec) -> Iterator[str]:
    low, first, high = spec.worker_range
    given = {"spec.min-instances": spec.min_instances, "spec.max-instances": spec.max_instances}
    if Role.WORKER not in spec.roles:
        for field, value in given.items():
            if value is not None:
                yield f"{field}={value}: the job has no spec.tfReplicaSpecs.Worker to count"
        return
    if low > high:
        yield f"spec.min-instances={low}: more than spec.max-instances={high}"
    if not low <= first <= high:
        yield (
            f"spec.tfReplicaSpecs.Worker.replicas={first}: outside of spec.min-instances={low} to "
            f"spec.max-instances={high}"
        )


_GATES: Final = "schedulingGates"


def _of_template(at: str, template: Manifest) -> Iterator[str]:
    try:
        parts = parts_of(template)
    except ValidationError as error:
        yield f"{at}.{problem_of(error).removeprefix('spec.')}"
        return
    names = [container.name for container in parts.spec.containers]
    if names.count(CONTAINER) != 1:
        yield (
            f"{at}.spec.containers have the names {names}: one has to be {CONTAINER!r}, by whose "
            "end success is decided"
        )
    if gates := template["spec"].get(_GATES):
        yield f"{at}.spec.{_GATES}={gates!r}: this kind places its pods itself; leave it out"
    yield from _of_share(f"{at}.metadata.annotations", parts)


def _of_share(at: str, parts: PodParts) -> Iterator[str]:
    """KubeShare starts nothing, and says nothing, where its annotations do not go together."""
    written = parts.metadata.annotations
    values = {
        "kubeshare/gpu_request": written.request,
        "kubeshare/gpu_limit": written.limit,
        "kubeshare/gpu_mem": written.memory_bytes,
    }
    missing = [name for name, value in values.items() if value is None]
    if missing and len(missing) < len(values):
        yield f"{at}.{missing[0]} is missing: KubeShare needs {', '.join(values)}"
    if (written.request or 0) > (written.limit or 0):
        request, limit = ((value or 0) / NANO for value in (written.request, written.limit))
        yield f"{at}.kubeshare/gpu_request={request:g}: more than kubeshare/gpu_limit={limit:g}"
    if chosen := (written.model_extra or {}).get(CARD_ID):
        yield f"{at}.{CARD_ID}={chosen!r}: the card is chosen when the pod is placed; leave it out"
