"""TrainingJob: trainers and parameter servers, and a master that hands out the tasks.

Its fields are named as its users have them, some with underscores, some with dashes.
"""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from elastic.controller.resources.common import (
    MAX_INT32,
    Fields,
    Reading,
    ReplicaStatus,
    Time,
    read_spec,
)
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.spec.values import nanos_of

RESOURCE: Final = Resource("paddlepaddle.org", "v1", "trainingjobs", "TrainingJob")
SERVED_VERSIONS: Final = ("v1", "v1alpha1")
"""All of one form; the first is the one that is stored and watched."""

DEFAULT_IMAGE: Final = "paddlepaddle/paddlecloud-job"
DEFAULT_PORT: Final = 7164
MAX_PORT: Final = 65535
MAX_NAME: Final = 63 - len("-trainer")
"""Of a job: its role is added to the names of what is made for it, which are labels as well."""


def _checked(quantity: Any) -> Any:
    nanos_of(quantity)
    return quantity


Quantity = Annotated[int | float | str, BeforeValidator(_checked)]
"""An amount of a resource, kept as it was written: in YAML `cpu: 1` and `cpu: 0.5` are numbers."""

Instances = Annotated[int, Field(strict=True, ge=1, le=MAX_INT32)]
Port = Annotated[int, Field(strict=True, ge=1, le=MAX_PORT)]
Flag = Annotated[bool, Field(strict=True)]
Part = Annotated[
    dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]
"""A part of a pod's spec as it was written; what is in it is the API server's to judge."""


class _Written(Fields):
    """Fields that are written exactly as they are named here, and in no other way."""

    model_config = ConfigDict(alias_generator=None, populate_by_name=False)


class RoleResources(_Written):
    """What each instance of a role asks of its node, by Kubernetes' names of resources."""

    limits: dict[str, Quantity] = Field(
        default={},
        description="The most that an instance may use, such as `cpu: 800m`.",
    )
    requests: dict[str, Quantity] = Field(
        default={},
        description="What is set aside for an instance; as its limits where left out.",
    )

    @field_validator("requests")
    @classmethod
    def _fit_the_limits(cls, requests: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Kubernetes takes no pod whose requests do not; better said here than by each pod."""
        limits = info.data.get("limits", {})
        for name, request in requests.items():
            # Devices: only cores and memory can be promised to more than one.
            is_whole = "/" in name
            if name not in limits:
                if is_whole:
                    raise ValueError(f"{name}={request} needs the same amount in limits")
                continue
            if nanos_of(request) > nanos_of(limits[name]):
                raise ValueError(f"{name}={request} is above limits, which has {limits[name]}")
            if is_whole and nanos_of(request) != nanos_of(limits[name]):
                raise ValueError(f"{name}={request} has to equal limits, which has {limits[name]}")
        return requests


class _Role(_Written):
    resources: RoleResources = Field(
        default=RoleResources(),
        description="What each instance asks of its node.",
    )
    command: Annotated[list[str], Field(min_length=1)] | None = Field(
        default=None,
        description="The command of the container, word by word, instead of the image's own.",
    )


class MasterSpec(_Role):
    """The master, which hands out the tasks of a data set: one instance."""


class _Range(_Role):
    min_instance: Instances = Field(
        alias="min-instance", description="The fewest instances: the job waits until it has them."
    )
    max_instance: Instances | None = Field(
        default=None,
        alias="max-instance",
        description="The most instances; as many as `min-instance` where left out.",
    )

    @field_validator("max_instance")
    @classmethod
    def _is_not_below_the_minimum(cls, maximum: int | None, info: ValidationInfo) -> int | None:
        minimum = info.data.get("min_instance")
        if maximum is not None and minimum is not None and maximum < minimum:
            raise ValueError(
                f"should be at least min-instance, which is {minimum}: raise it, or lower that one"
            )
        return maximum

    @property
    def most(self) -> int:
        """The most instances."""
        return self.min_instance if self.max_instance is None else self.max_instance


class PserverSpec(_Range):
    """The parameter servers."""


class TrainerSpec(_Range):
    """The trainers."""

    entrypoint: str = Field(
        default="",
        description="The command line that trains, which the image's start script runs.",
    )
    workspace: str = Field(
        default="", description="Where the image finds the program and its files."
    )
    passes: Instances | None = Field(
        default=None,
        description="Passes over the data; `spec.passes` is used where both are given.",
    )


class SecretName(_Written):
    """A secret of the same namespace."""

    name: str = Field(min_length=1, description="Its name.")


class TrainingJobSpec(_Written):
    """What is to be trained, by how many."""

    image: str = Field(
        default=DEFAULT_IMAGE,
        pattern=r"^\S+$",
        description="The image of all containers of the job.",
    )
    ports_num: Port = Field(
        default=1, description="How many ports each instance has for dense parameters."
    )
    ports_num_for_sparse: Annotated[int, Field(strict=True, ge=0, le=MAX_PORT)] = Field(
        default=1,
        description="How many ports each instance has for sparse parameters, after the others.",
    )
    port: Port = Field(
        default=DEFAULT_PORT,
        validate_default=True,
        description="The first of the ports of each instance.",
    )
    passes: Instances | None = Field(
        default=None,
        description="Passes over the data; `trainer.passes` or else 1 where left out.",
    )
    fault_tolerant: Flag = Field(
        default=False,
        description="Whether the job goes on when trainers fail. Without it the job stays at its "
        "`min-instance`.",
    )
    volumes: list[Part] = Field(default=[], description="Volumes of all pods of the job.")
    mount_path: str | None = Field(
        default=None,
        alias="mountPath",
        pattern=r"^/[^:]*$",
        description="Where the first volume is mounted; an empty one where there are no volumes.",
    )
    volume_mounts: list[Part] = Field(
        default=[],
        alias="volumeMounts",
        description="Where volumes are mounted, in all containers.",
    )
    node_selector: dict[str, str] = Field(
        default={},
        alias="nodeSelector",
        description="Labels that the nodes of the job have.",
    )
    tolerations: list[Part] = Field(
        default=[], description="Taints of nodes that the pods of the job bear."
    )
    host_network: Flag = Field(
        default=False, description="Whether the pods use the network of their node."
    )
    image_pull_secrets: list[SecretName] = Field(
        default=[],
        alias="imagePullSecrets",
        description="Secrets by which the image is pulled.",
    )
    master: MasterSpec | None = Field(
        default=None,
        description="The master; there is none where this is left out.",
    )
    pserver: PserverSpec = Field(description="The parameter servers.")
    trainer: TrainerSpec = Field(description="The trainers.")

    @field_validator("port")
    @classmethod
    def _leaves_room_for_all(cls, port: int, info: ValidationInfo) -> int:
        dense, sparse = (info.data.get(name) for name in ("ports_num", "ports_num_for_sparse"))
        if dense is not None and sparse is not None and port + dense + sparse - 1 > MAX_PORT:
            raise ValueError(
                f"with ports_num={dense} and ports_num_for_sparse={sparse} the last port is "
                f"{port + dense + sparse - 1}, above {MAX_PORT}: lower one of them"
            )
        return port

    @field_validator("volumes")
    @classmethod
    def _have_names(cls, volumes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names: set[str] = set()
        for index, volume in enumerate(volumes):
            name = volume.get("name")
            if not isinstance(name, str) or not name:
                raise ValueError(f"the volume at index {index} has no name")
            if name in names:
                raise ValueError(f"two volumes are named {name}")
            names.add(name)
        return volumes

    @field_validator("volume_mounts")
    @classmethod
    def _are_of_volumes(
        cls, mounts: list[dict[str, Any]], info: ValidationInfo
    ) -> list[dict[str, Any]]:
        known = {volume["name"] for volume in info.data.get("volumes", ())}
        paths: set[str] = set()
        for index, mount in enumerate(mounts):
            name, path = mount.get("name"), mount.get("mountPath")
            if not isinstance(path, str) or not path:
                raise ValueError(f"the mount at index {index} has no mountPath")
            is_known = isinstance(name, str) and name in known
            if "volumes" in info.data and not is_known:
                raise ValueError(f"the mount at {path} is of {name!r}, which is not in volumes")
            if path in paths:
                raise ValueError(f"two mounts are at {path}")
            paths.add(path)
        return mounts

    @property
    def num_passes(self) -> int:
        """Passes over the data, wherever they are said."""
        return self.passes or self.trainer.passes or 1

    @property
    def num_ports(self) -> int:
        """Ports of each instance, from `port` upwards."""
        return self.ports_num + self.ports_num_for_sparse


class Phase(StrEnum):
    """Where a job is: none → creating → running → succeeded or failed.

    It is `creating` until all of it is there and runs, and never goes back. A spec that is wrong
    fails at once, a trainer may fail while others are being created, and the last two are the end.
    """

    NONE = ""
    CREATING = "creating"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing follows."""
        return self in {Phase.SUCCEEDED, Phase.FAILED}


class Role(StrEnum):
    """What an instance is to its job, in the order in which they are created."""

    MASTER = "master"
    PSERVER = "pserver"
    TRAINER = "trainer"


class RoleScale(_Written):
    """How many instances a role has, and why so many."""

    current: int = Field(default=0, description="Instances that run or are about to.")
    wanted: int = Field(default=0, description="Instances that there are to be.")
    reason: str = Field(default="", description="Why so many are wanted.")
    time: Time | None = Field(default=None, description="Since when so many are wanted.")


class ScaleStatus(_Written):
    """The sizes of the roles that have a range."""

    trainer: RoleScale = Field(default=RoleScale(), description="Of the trainers.")
    pserver: RoleScale = Field(default=RoleScale(), description="Of the parameter servers.")


class RoleStatus(ReplicaStatus):
    """The pods of one role."""

    model_config = ConfigDict(alias_generator=None, populate_by_name=False)

    training_resource_type: Role = Field(description="Which role.")
    resource_states: dict[str, str] = Field(
        default={},
        description="The phase of each pod, or `Terminating`; of failed ones the newest.",
    )


class TrainingJobStatus(_Written):
    """What became of the job so far."""

    phase: Phase = Field(
        default=Phase.NONE, description="Where the job is; empty before it was read."
    )
    reason: str = Field(
        default="", description="Why it failed, or what keeps it from obeying its spec."
    )
    scale_status: ScaleStatus = Field(
        default=ScaleStatus(),
        description="How many trainers and parameter servers there are to be.",
    )
    replica_statuses: list[RoleStatus] = Field(default=[], description="The pods of each role.")
    observed_generation: int | None = Field(
        default=None,
        alias="observedGeneration",
        description="The spec that this is about.",
    )

    def scale_of(self, role: Role) -> RoleScale:
        """The size of a role that has a range."""
        return self.scale_status.trainer if role is Role.TRAINER else self.scale_status.pserver


def read_job(job: Manifest) -> Reading[TrainingJobSpec]:
    """The spec of a job, or why it is none; its name counts too, since others are made from it."""
    name = str(job["metadata"]["name"])
    if len(name) > MAX_NAME:
        return Reading(
            None,
            f"metadata.name={name}: has {len(name)} characters, and at most {MAX_NAME} leave room "
            "for the names that are made from it, such as JOB-trainer: submit it by a shorter one",
        )
    return read_spec(TrainingJobSpec, job)
