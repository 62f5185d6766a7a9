"""ElasticTrainJob: a job of `elastic train`, `evaluate` or `predict` as a resource.

`resource_of` is the one that asks for a job which the command line has been given.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from elastic.controller.resources.common import Condition, Count, Fields, read_spec
from elastic.controller.resources.schema import KEEP_UNKNOWN, structural
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.names import QUEUE_LABEL, TRAIN_JOBS
from elastic.spec.job import JobSpec, Setting, job_values, known_name, problem_text, settings
from elastic.spec.platforms import MODEL_ZOO_PATH, JobKind
from elastic.spec.settings.cluster import STATE_MOUNT, Image, state_volume
from elastic.spec.status import JobStatus

RESOURCE: Final = TRAIN_JOBS

_OBJECT_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_MAX_NAME: Final = 253
_MAX_LABEL: Final = 63
_FROM_THE_RESOURCE: Final = ("job_name", "namespace", "image")
"""Settings that the resource says by itself; in the job they may only repeat it."""
_ELSEWHERE: Final = ("job_name", "namespace", "image", "model_zoo")
"""Settings that a resource says outside of its job, or has in its image."""


def _settings_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """The settings among the keys of a job, by their own names.

    Raises:
        ValueError: One is given twice.
    """
    keys: dict[str, str] = {}
    for key in job:
        name = known_name(key)
        if name is None:
            continue
        if name in keys:
            raise ValueError(f"{keys[name]} and {key} are the same setting: leave one out")
        keys[name] = key
    return {name: job[key] for name, key in keys.items()}


def _check_job(job: dict[str, Any]) -> dict[str, Any]:
    """Check what can be without the name of the resource.

    Raises:
        ValueError: A setting has no usable value, no meaning for such a job, or no place here; a
            `ValidationError` names it by itself.
    """
    values = _settings_of(job)
    spec = JobSpec.model_validate({"model_zoo": MODEL_ZOO_PATH, **values})
    for setting in settings():
        if setting.name in values and spec.kind not in setting.kinds:
            raise ValueError(
                f"{setting.name}={values[setting.name]!r} has no meaning for a job of kind "
                f"{spec.kind}: leave it out"
            )
    if not spec.platform.traits.has_controllers:
        raise ValueError(
            f"platform={spec.platform}, and a resource is run by Kubernetes: leave it out"
        )
    if spec.cluster_spec:
        raise ValueError(
            f"cluster_spec={spec.cluster_spec!r} names a file of the machine that submits, which "
            "a resource does not bring along: leave it out"
        )
    return job


class _JobSchema:
    """Has the settings of a job in the schema, in place of a mapping of anything."""

    def __get_pydantic_json_schema__(
        self, _core: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> Manifest:
        schema = JobSpec.model_json_schema(mode="validation")
        fields = schema["properties"]
        plain = {
            setting.name: _plain(fields[setting.name]) | {"description": _told(setting)}
            for setting in settings()
        }
        # Required ones may be written with dashes, which a schema has no word for.
        only_fields = {"type": "object", "$defs": schema["$defs"], "properties": plain}
        return structural(only_fields, "job")


def _plain(field: Manifest) -> Manifest:
    """The schema of a setting without what `setting()` notes about it."""
    notes = {"group", "aliases", "kinds", "only", "place", "default"}
    return {word: value for word, value in field.items() if word not in notes}


def _told(setting: Setting) -> str:
    """A setting in the words of `elastic train --help`."""
    parts = [setting.help]
    if setting.expected != "text":
        parts.append(f"expected: {setting.expected}")
    if setting.default:
        parts.append(f"default: {setting.default}")
    if len(setting.kinds) < len(JobKind):
        parts.append(f"only for {', '.join(kind for kind in JobKind if kind in setting.kinds)}")
    return "; ".join(parts)


class ClaimTemplate(Fields):
    """A PersistentVolumeClaim to be made for the job."""

    metadata: Annotated[dict[str, Any], Field(json_schema_extra={KEEP_UNKNOWN: True})] = Field(
        {}, description="Labels and annotations of the claim."
    )
    spec: Annotated[dict[str, Any], Field(json_schema_extra={KEEP_UNKNOWN: True})] = Field(
        description="A PersistentVolumeClaimSpec, as Kubernetes has it."
    )

    @field_validator("metadata")
    @classmethod
    def _check_texts(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        for key in ("labels", "annotations"):
            if not _are_texts(entries := metadata.get(key) or {}):
                raise ValueError(f"{key}={entries!r} must be texts by their names")
        return metadata


def _are_texts(entries: object) -> bool:
    return isinstance(entries, dict) and all(isinstance(each, str) for each in entries.values())


class State(Fields):
    """The volume on which a master keeps what its successor goes on from; one of the two."""

    volume_claim_template: ClaimTemplate | None = Field(
        None, description="A claim that is made for the job, and removed with the resource."
    )
    claim_name: Annotated[str, Field(pattern=_OBJECT_NAME, max_length=_MAX_NAME)] | None = Field(
        None, description="A claim that is there, and stays when the resource is removed."
    )

    @model_validator(mode="after")
    def _check_one(self) -> "State":
        given = [each for each in (self.volume_claim_template, self.claim_name) if each is not None]
        if len(given) != 1:
            raise ValueError(
                f"{len(given)} of volumeClaimTemplate and claimName are given: give one of them"
            )
        return self


class ElasticTrainJobSpec(Fields):
    """What is to be done, and with what."""

    job: Annotated[dict[str, Any], AfterValidator(_check_job), _JobSchema()] = Field(
        description="The settings of the job, key by key as in a job file."
    )
    image: Image = Field(
        "", description="Image that holds the model_zoo at /model_zoo; the job's own where empty."
    )
    state: State | None = Field(
        None,
        description="Volume from which the job goes on when its master is lost; without one it "
        "begins again.",
    )
    ttl_seconds_after_finished: Count | None = Field(
        None,
        description="Seconds after its end at which the resource is deleted, with all that belongs "
        "to it; never where left out.",
    )
    suspend: bool = Field(
        False, description="Whether the job has no pods for now; it goes on from its state."
    )
    queue: Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")] = Field(
        "",
        max_length=_MAX_LABEL,
        description="Queue of the cluster that the pods wait in, of Kueue, Volcano or KAI; "
        "`default` where there is nothing but the PodGroups of Kubernetes.",
    )

    @model_validator(mode="after")
    def _check_together(self) -> "ElasticTrainJobSpec":
        values = _settings_of(self.job)
        own = values.get("image") or ""
        if not (self.image or own):
            raise ValueError(
                "image is missing: name one that holds the model_zoo at /model_zoo, as "
                "`elastic train` builds it"
            )
        if self.image and own not in ("", self.image):
            raise ValueError(f"image={self.image!r} and job.image={own!r} differ: leave one out")
        queue = values.get("queue") or ""
        if self.queue and queue not in ("", self.queue):
            raise ValueError(f"queue={self.queue!r} and job.queue={queue!r} differ: leave one out")
        volume = state_volume(values.get("volume") or "")
        if self.state is not None and volume is not None:
            raise ValueError(
                f"job.volume={values['volume']!r} has a volume at {STATE_MOUNT}, and state names "
                "another: leave one out"
            )
        return self

    def unknown(self, path: str = "") -> Iterator[str]:
        yield from super().unknown(path)
        yield from (f"{path}job.{key}" for key in self.job if known_name(key) is None)

    def claim_name(self, name: str) -> str | None:
        """The claim of the job's state; None where nothing outlives the master's pod.

        Args:
            name: Of the resource.
        """
        if self.state is None:
            volume = state_volume(_settings_of(self.job).get("volume") or "")
            return volume.claim_name if volume is not None else None
        return self.state.claim_name or f"elastic-{name}-state"

    @property
    def queue_field(self) -> str:
        """Which field names the queue, if any does."""
        return "spec.queue" if self.queue else "spec.job.queue"

    def job_spec(self, name: str, namespace: str, queue: str = "") -> JobSpec:
        """The whole job, as every process of it is to read it.

        Args:
            name: Of the resource, which is that of the job.
            namespace: Of the resource.
            queue: That the label of the resource names, if any.

        Raises:
            JobSpecError: No job can have this name, or the job names another one, another
                namespace, or another queue than the label.
        """
        values = _settings_of(self.job)
        named = self.queue or values.get("queue") or ""
        if queue and named not in ("", queue):
            raise JobSpecError(
                f"{self.queue_field} is {named!r}, and the label {QUEUE_LABEL} is {queue!r}: leave "
                "one out"
            )
        own = {
            "job_name": name,
            "namespace": namespace,
            "image": self.image or values.get("image"),
            "queue": named or queue,
        }
        for key in _FROM_THE_RESOURCE:
            if values.get(key) not in (None, "", own[key]):
                raise JobSpecError(
                    f"spec.job.{key} is {values[key]!r}, and the resource has {own[key]!r}: leave "
                    "it out"
                )
        if self.state is not None:
            state = f"claim_name={self.claim_name(name)},mount_path={STATE_MOUNT}"
            own["volume"] = ";".join(filter(None, (values.get("volume"), state)))
        try:
            return JobSpec.model_validate({**values, **own, "model_zoo": MODEL_ZOO_PATH})
        except ValidationError as error:
            told = problem_text(error.errors()[0], lambda key: _PLACES.get(key, f"spec.job.{key}"))
            raise JobSpecError(told) from error


_PLACES: Final = {"job_name": "metadata.name", "namespace": "metadata.namespace"}


class Remembered(BaseModel):
    """What the controller of a job knows besides, and finds again; all else in a status is told."""

    # Read from the whole status, which a newer controller may have written.
    model_config = ConfigDict(extra="ignore", frozen=True)

    conditions: tuple[Condition, ...] = Field(
        (), description="What is, or was, the case with the job; the last that holds is the newest."
    )
    master_pod: str = Field("", description="The pod of its master; empty where there is none.")
    observed_generation: int | None = Field(
        None, description="The generation of the resource that was looked at last."
    )
    master_failures: Count = Field(
        0, description="Pods of the master that failed in a row, of which none ran for long."
    )
    failed_master: str = Field(
        "", description="The uid of the newest pod of the master that failed, which counts once."
    )
    written_s: float | None = Field(None, description="When this status was written.")


class ElasticTrainJobStatus(Remembered, JobStatus):
    """What `elastic status -o json` prints of the job, and what its controller knows besides."""

    # A newer controller may have written more.
    model_config = ConfigDict(extra="allow")


def resource_of(spec: JobSpec) -> Manifest:
    """The ElasticTrainJob that asks for a job; defaults are left to whoever reads it.

    Args:
        spec: With a name, and with the image that it runs.

    Raises:
        JobSpecError: A resource cannot say this job.
    """
    if not spec.platform.traits.has_images:
        raise JobSpecError(
            f"--platform {spec.platform} has no resources, which -o crd prints: add "
            "--platform kubernetes"
        )
    if not spec.image:
        raise JobSpecError(
            "-o crd needs --image: a resource brings no folder along; "
            f"`elastic zoo build {spec.model_zoo} --image IMAGE` makes one"
        )
    metadata = {"name": spec.job_name}
    if spec.namespace:
        metadata["namespace"] = spec.namespace
    resource = {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": metadata,
        "spec": {"image": spec.image, "job": _chosen(spec)},
    }
    # What the controller would refuse is refused here.
    if problem := read_spec(ElasticTrainJobSpec, resource).problem:
        raise JobSpecError(f"a resource cannot say this job: {problem}")
    return resource


def _chosen(spec: JobSpec) -> dict[str, Any]:
    """The settings of a job that differ from their defaults, or have none."""
    values = job_values(spec)
    fields = type(spec).model_fields
    return {
        each.name: values[each.name]
        for each in settings()
        if each.name in values
        and each.name not in _ELSEWHERE
        and getattr(spec, each.name) != fields[each.name].get_default(call_default_factory=True)
    }


def without_state(spec: JobSpec) -> str:
    """That a job begins again when its master is lost; empty where it goes on."""
    if state_volume(spec.volume) is not None:
        return ""
    return (
        f"without a --volume at {STATE_MOUNT} the job begins again when its master's pod is lost: "
        "name a claim there, or add spec.state"
    )
