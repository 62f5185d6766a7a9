"""What of a TFJob's spec can be read and has not the effect that its author may expect. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from elastic.controller.kinds.queueing import queue_of
from elastic.controller.kinds.tf_objects import TF_CONFIG
from elastic.controller.reconciling import EventType, Note
from elastic.controller.resources.tf_job import TFJobSpec
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects.queues import QUEUE_LABEL

_OF_SCHEDULERS: Final = ("schedulerName", "topologySpreadConstraints")
_OF_AFFINITY: Final = ("podAffinity", "podAntiAffinity")


def warnings_of(job: Manifest, spec: TFJobSpec, unknown: Sequence[str]) -> list[Note]:
    """Events to be told once of each spec.

    Args:
        job: The object.
        spec: Its own.
        unknown: Fields that mean nothing here, by their paths.
    """
    notes = []
    if unknown:
        message = f"kept and without effect: {', '.join(unknown)}; is one of them misspelt?"
        notes.append(Note("UnknownFields", message, EventType.WARNING))
    if queue := queue_of(job):
        message = (
            f"{QUEUE_LABEL}={queue}: this kind gives its pods their nodes itself, so no queue "
            "holds them"
        )
        notes.append(Note("QueueIgnored", message, EventType.WARNING))
    if ignored := list(_ignored(spec)):
        message = (
            f"without effect, as this kind gives its pods their nodes itself: {', '.join(ignored)}"
        )
        notes.append(Note("PlacementRulesIgnored", message, EventType.WARNING))
    if replaced := list(_replaced(spec)):
        message = f"replaced by what this job is to TensorFlow: {', '.join(replaced)}"
        notes.append(Note("EnvironmentReplaced", message, EventType.WARNING))
    return notes


def _ignored(spec: TFJobSpec) -> Iterator[str]:
    for role, replicas in spec.roles.items():
        pod, at = replicas.template["spec"], f"spec.tfReplicaSpecs.{role}.template.spec"
        yield from (f"{at}.{field}" for field in _OF_SCHEDULERS if pod.get(field))
        affinity = pod.get("affinity") or {}
        yield from (f"{at}.affinity.{field}" for field in _OF_AFFINITY if affinity.get(field))


def _replaced(spec: TFJobSpec) -> Iterator[str]:
    for role, replicas in spec.roles.items():
        for container in replicas.template["spec"]["containers"]:
            if any(each["name"] == TF_CONFIG for each in container.get("env") or ()):
                yield f"{TF_CONFIG} of {role}'s container {container['name']}"
