"""Finds fields of an edited pod that mean nothing: older API servers drop them in silence."""

from collections.abc import Mapping

from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.spec.names import nearest


def check_fields(source: str, sent: Manifest, taken: Manifest) -> None:
    """Refuse a field of the pod's metadata, spec and containers that nobody knows.

    Args:
        source: Where the fields come from, for the message.
        sent: The pod, as the API server was asked for it.
        taken: As the API server took it. What it has kept it knows, of whatever version it is.

    Raises:
        JobSpecError: With the field, and what may be meant.
    """
    # Only for jobs that have a cluster_spec: it takes a second to import.
    from kubernetes.client.models import V1Container, V1ObjectMeta, V1PodSpec

    _check(source, "metadata", sent["metadata"], taken["metadata"], V1ObjectMeta.attribute_map)
    _check(source, "spec", sent["spec"], taken["spec"], V1PodSpec.attribute_map)
    for field in ("initContainers", "containers"):
        there = {container["name"]: container for container in taken["spec"].get(field) or []}
        for container in sent["spec"].get(field) or []:
            name = container.get("name", "")
            where = f"container {name!r} of spec.{field}"
            _check(source, where, container, there.get(name, {}), V1Container.attribute_map)


def _check(
    source: str, where: str, sent: Manifest, taken: Manifest, attributes: Mapping[str, str]
) -> None:
    for field in sent:
        if field in attributes.values() or field in taken:
            continue
        near = nearest(field, attributes.values())
        advice = f"did you mean {near}?" if near else "correct it, or leave it out"
        raise JobSpecError(f"cluster_spec ({source}): {where} has no field {field!r}: {advice}")
