"""The container of a replica, told from others in its pod by its name. Pure.

A cluster_spec, a service mesh or an agent may add containers, and a node sorts their states by
name: where one stands in a list means nothing.
"""

from typing import Any

from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.names import CONTAINER


def own_status(pod: Manifest) -> dict[str, Any]:
    """What the node has told of the container; empty before it has told anything."""
    return _own((pod.get("status") or {}).get("containerStatuses"))


def own_spec(pod: Manifest) -> dict[str, Any]:
    """What the container was made from; empty in a pod that is not ours."""
    return _own(pod["spec"].get("containers"))


def own_state(pod: Manifest) -> dict[str, Any]:
    """The present state: one key of `waiting`, `running`, `terminated`, or none."""
    state: dict[str, Any] = own_status(pod).get("state") or {}
    return state


def last_terminated(pod: Manifest) -> dict[str, Any] | None:
    """How the newest run of it that is over has ended; None where none is known."""
    ended: dict[str, Any] | None = own_state(pod).get("terminated") or (
        own_status(pod).get("lastState") or {}
    ).get("terminated")
    return ended


def is_node_silent(pod: Manifest) -> bool:
    """Whether the control plane has marked a pod as not ready since its node does not answer.

    It marks the pod alone, and leaves what the node told of the containers. A container that has
    ended or fails its probe is told by the node itself, which marks both.
    """
    conditions = {c.get("type"): c for c in (pod.get("status") or {}).get("conditions") or ()}
    ready, containers_ready = (conditions.get(k) or {} for k in ("Ready", "ContainersReady"))
    return (
        ready.get("status", "True") != "True"
        and containers_ready.get("status", "True") == "True"
        # Somebody else's gate: the node does answer.
        and ready.get("reason") != "ReadinessGatesNotReady"
        and bool(own_status(pod).get("ready", True))
    )


def _own(entries: list[dict[str, Any]] | None) -> dict[str, Any]:
    return next((entry for entry in entries or () if entry.get("name") == CONTAINER), {})
