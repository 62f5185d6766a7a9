"""Snapshots as documents, both ways. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import Field

from elastic.errors import DescriptionError
from elastic.planning.documents import Form, load_document, read_form
from elastic.planning.forms import JobForm, NodeForm, PodForm
from elastic.policy.cluster.amounts import GPU, MEMORY, Amounts, quantity
from elastic.policy.cluster.rules import Rules
from elastic.policy.cluster.snapshot import Group, Job, Node, Pod, Share, Shown, Snapshot, Telling


class SnapshotForm(Form):
    """A cluster at one moment."""

    now_s: float
    nodes: tuple[NodeForm, ...]
    jobs: tuple[JobForm, ...] = ()
    pods: tuple[PodForm, ...] = ()
    last_change_s: float | None = None
    shown: Mapping[str, Shown] = Field(default_factory=dict)


def read_snapshot(text: str, name: str) -> Snapshot:
    """A snapshot that was written as YAML or JSON.

    Args:
        text: All of the file.
        name: Of the file, for errors.

    Raises:
        DescriptionError: It is none.
    """
    form = read_form(SnapshotForm, load_document(text, name), name)
    nodes = tuple(node for each in form.nodes for node in each.values())
    jobs = tuple(each.job() for each in form.jobs)
    pods = tuple(pod for each in form.pods for pod in each.values())
    refuse_repeated([node.name for node in nodes], "nodes", name)
    refuse_repeated([job.key for job in jobs], "jobs", name)
    return Snapshot(form.now_s, nodes, jobs, pods, form.last_change_s, form.shown)


def refuse_repeated(names: list[str], what: str, file: str) -> None:
    """Refuse names that are not unique.

    Raises:
        DescriptionError: Two are alike.
    """
    seen: set[str] = set()
    for each in names:
        if each in seen:
            raise DescriptionError(f"{file}: two {what} are named {each}")
        seen.add(each)


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """What `read_snapshot` reads, as plain values; without what says nothing."""
    return _told(
        {
            "now_s": snapshot.now_s,
            "last_change_s": snapshot.last_change_s,
            "nodes": [node_document(each) for each in snapshot.nodes],
            "jobs": [job_document(each) for each in snapshot.jobs],
            "pods": [_pod(each) for each in snapshot.pods],
            "shown": {name: _told(asdict(each)) for name, each in snapshot.shown.items()},
        }
    )


_NOTHING: Final[tuple[Any, ...]] = ("", (), [], {})


_KEPT: Final = frozenset({"nodes", "affinity_nodes"})
"""Has to be written, also where there is nothing."""


def _told(keys: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: each for key, each in keys.items() if each is not None}
    return {key: each for key, each in said.items() if each not in _NOTHING or key in _KEPT}


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {name: quantity(name, amount) for name, amount in amounts.items()}


def node_document(node: Node) -> dict[str, Any]:
    """A node as `NodeForm` reads it."""
    memory = node.card_memory_bytes
    return _told(
        {
            "name": node.name,
            "allocatable": _quantities(node.allocatable),
            "ready": None if node.is_ready else False,
            "unschedulable": node.is_unschedulable or None,
            "taints": [_told(asdict(taint)) for taint in node.taints],
            "labels": dict(node.labels),
            "card_memory": None if memory is None else quantity(MEMORY, memory),
        }
    )


def _pod(pod: Pod) -> dict[str, Any]:
    return _told(
        {"node": pod.node, "card": pod.card}
        | _needs(pod.requests, pod.limits, pod.rules, pod.share)
    )


def _needs(requests: Amounts, limits: Amounts, rules: Rules, share: Share | None) -> dict[str, Any]:
    return {
        "requests": _quantities(requests),
        "limits": None if limits == requests else _quantities(limits),
        "share": None if share is None else _share(share),
        "tolerations": [_told(asdict(each)) for each in rules.tolerations],
        "node_selector": dict(rules.node_selector),
        "affinity_nodes": None if rules.nodes is None else sorted(rules.nodes),
    }


def _share(share: Share) -> dict[str, str]:
    written = {"gpu": quantity(GPU, share.milli)}
    return written | (
        {"memory": quantity(MEMORY, share.memory_bytes)} if share.memory_bytes else {}
    )


def _group(group: Group) -> dict[str, Any]:
    return {
        "min": group.min,
        "max": group.max,
        "replicas": group.replicas,
        "asked": group.asked,
        "placement": dict(group.placement),
        "leaving": dict(group.leaving),
        "cards": {node: dict(each) for node, each in group.cards.items()},
        "first_node": group.first_node,
    } | _needs(group.requests, group.limits, group.rules, group.share)


def job_document(job: Job) -> dict[str, Any]:
    """A job as `JobForm` reads it."""
    return _told(
        {
            "name": job.name,
            "namespace": job.namespace,
            "kind": job.kind,
            "phase": str(job.phase),
            "submitted_s": job.submitted_s,
            "last_scaled_s": job.last_scaled_s,
            "waiting_since_s": job.waiting_since_s,
            "role": job.workers.role,
            **_group(job.workers),
            "ps": None if job.ps is None else _told(_group(job.ps) | {"role": job.ps.role}),
            "others": [_told(_group(each) | {"role": each.role}) for each in job.others],
            "telling": _telling(job.telling),
            "stoppable": job.is_stoppable or None,
            "movable": job.is_movable or None,
            "program": job.program,
        }
    )


def _telling(telling: Telling) -> dict[str, Any]:
    return _told(asdict(telling))
