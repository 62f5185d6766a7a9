"""Policies by their names, what can be said to them, and how plans are shown. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from elastic.policy.cluster import Decision, Job, Placement, Plan, Policy, Snapshot
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput
from elastic.policy.scaling.offers import alike_of, not_weighed
from elastic.policy.scaling.queueing import Fifo, Gang

Remark = Callable[[Job], str | None]
"""What a policy says of a job whatever it decides; None for nothing."""

NO_JOBS: Final = "no jobs to plan for; those of `elastic train` count where they have --autoscale"
"""In place of an empty table, whose reader wonders what became of a job that runs."""


def plan_lines(plan: Plan, snapshot: Snapshot, remark: Remark = lambda _: None) -> list[str]:
    """All jobs, what becomes of them, and why."""
    if not snapshot.jobs:
        return [NO_JOBS]
    decisions = {each.job: each for each in plan.decisions}
    notes = {each.job: each.text for each in plan.notes}
    rows: list[tuple[str, ...]] = [("JOB", "PHASE", "RANGE", "SIZE", "NODES", "WHY")]
    rows += [
        _row(job, decisions.get(job.key), notes.get(job.key) or remark(job) or "")
        for job in sorted(snapshot.jobs, key=lambda each: each.key)
    ]
    remarks = Counter(text for job in snapshot.jobs if (text := remark(job)) is not None)
    remarked = [
        f"{count} of {len(snapshot.jobs)} jobs: {text}" for text, count in sorted(remarks.items())
    ]
    return [*aligned(rows), "", _summary(plan, snapshot), *remarked]


def _row(job: Job, decision: Decision | None, note: str) -> tuple[str, ...]:
    workers = job.workers
    low_high = f"{workers.min}..{workers.max}"
    placed = str(workers.placed)
    if decision is None:
        nodes = str(len(workers.placement)) if workers.placement else "-"
        return job.key, str(job.phase), low_high, placed, nodes, note
    to = placed if decision.replicas == workers.placed else f"{placed} -> {decision.replicas}"
    nodes = "-" if decision.placement is None else _shown(decision.placement)
    return job.key, str(job.phase), low_high, to, nodes, decision.reason


_MAX_NODES = 3


def _shown(placement: Placement) -> str:
    """Where replicas are, the nodes with the most of them first."""
    ordered = sorted(placement.items(), key=lambda each: (-each[1], each[0]))
    names = [f"{node}:{count}" for node, count in ordered[:_MAX_NODES]]
    rest = len(ordered) - _MAX_NODES
    return " ".join(names) + (f" +{rest} nodes" if rest > 0 else "") or "-"


def _summary(plan: Plan, snapshot: Snapshot) -> str:
    changed = len(plan.decisions)
    kept = len(snapshot.jobs) - changed
    return f"{changed} of {len(snapshot.jobs)} jobs would change, {kept} would not"


def plan_document(
    plan: Plan, snapshot: Snapshot, policy: str, remark: Remark = lambda _: None
) -> dict[str, Any]:
    """The same as plain values."""
    before = {job.key: job for job in snapshot.jobs}
    remarks = ((key, remark(job)) for key, job in sorted(before.items()))
    return {
        "policy": policy,
        "now_s": snapshot.now_s,
        "decisions": [_decision(each, before[each.job]) for each in plan.decisions],
        "notes": [{"job": each.job, "text": each.text} for each in plan.notes],
        "remarks": [{"job": key, "text": text} for key, text in remarks if text is not None],
    }


def _decision(decision: Decision, job: Job) -> dict[str, Any]:
    document: dict[str, Any] = {
        "job": decision.job,
        "from": job.workers.placed,
        "to": decision.replicas,
        "reason": decision.reason,
        "placement": None if decision.placement is None else dict(decision.placement),
    }
    if decision.ps_replicas is not None or decision.ps_placement is not None:
        placement = decision.ps_placement
        document["ps"] = {
            "to": decision.ps_replicas,
            "placement": None if placement is None else dict(placement),
        }
    if decision.other_placements:
        document["others"] = {role: dict(at) for role, at in decision.other_placements.items()}
    if decision.global_batch_size is not None:
        document["global_batch_size"] = decision.global_batch_size
    if decision.cards:
        document["cards"] = {
            role: {node: dict(cards) for node, cards in each.items()}
            for role, each in decision.cards.items()
        }
    return document


def aligned(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """Rows as lines of columns, two spaces apart; those of `right` end where they end."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    ends = frozenset(right)
    return [
        "  ".join(
            cell.rjust(width) if column in ends else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# Policies by their names, and what can be said to them. Pure.


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What users may say to a policy; None for its own default.

    Attributes:
        max_load: The part of CPU and memory that is given out at most.
        starve_after_s: How long a job waits before others give way.
        grow_after_s: How long nothing has to happen before jobs grow.
    """

    max_load: float | None = None
    starve_after_s: float | None = None
    grow_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy that can be asked for by its name.

    Attributes:
        options: Those of `PolicyOptions` that it takes.
        remarks: What it says of the jobs of a snapshot whatever it decides.
    """

    make: Callable[..., Policy]
    summary: str
    options: frozenset[str] = frozenset()
    remarks: Callable[[Snapshot], Remark] = lambda _: lambda _: None

    def policy(self, options: PolicyOptions) -> Policy:
        """The policy with what was said of it."""
        said = {name: getattr(options, name) for name in sorted(self.options)}
        return self.make(**{name: value for name, value in said.items() if value is not None})


def _not_weighed(snapshot: Snapshot) -> Remark:
    return partial(not_weighed, alike=alike_of(snapshot.jobs, snapshot.shown))


POLICIES: Final[Mapping[str, NamedPolicy]] = MappingProxyType(
    {
        "fulfillment": NamedPolicy(
            Fulfillment,
            "room goes to who has the least of its range",
            frozenset({"max_load", "starve_after_s"}),
        ),
        "dragon": NamedPolicy(
            Dragon,
            "who waits may take workers from others, and idle room makes jobs grow",
            frozenset({"starve_after_s", "grow_after_s"}),
        ),
        "goodput": NamedPolicy(
            Goodput,
            "room goes where it shortens completion most, by the speeds that jobs tell",
            frozenset({"starve_after_s"}),
            _not_weighed,
        ),
        "gang": NamedPolicy(Gang, "the size that was asked for, or nothing; never resized"),
        "fifo": NamedPolicy(Fifo, "the same, strictly in the order of submission"),
    }
)
