"""The resource that asks for a job which the command line has been given."""

from typing import Any, Final

from elastic.controller.resources.base import read_spec
from elastic.controller.resources.elastic_train_job import RESOURCE, ElasticTrainJobSpec
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.spec.describe import settings
from elastic.spec.job import JobSpec
from elastic.spec.job_file import job_values
from elastic.spec.settings.cluster_forms import STATE_MOUNT, state_volume

_ELSEWHERE: Final = ("job_name", "namespace", "image", "model_zoo")
"""Settings that a resource says outside of its job, or has in its image."""


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
