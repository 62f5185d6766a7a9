"""The policy `goodput`: room goes where it shortens completion most for what it costs others.

Jobs are served in the order of the work they have left, the shortest first, since that lets the
most jobs end early; work counts less the older a job is, and who has waited for very long comes
first, so that none waits for ever. A running job keeps its smallest size where it is, unless it may
be stopped, and moved, and tells of its work. Each takes the size for which

    (work left / speed + cost of the change)
        x (1 + PRICE x jobs behind x share of the cluster + jobs that are left with nothing)

is least: its own time to completion, by how much its use of the cluster delays those behind, and,
where the work it has left is a guess, who could run beside it and does not. So a lonely job takes
all that makes it faster, and one with many behind it only what it makes good use of.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from elastic.policy.cluster.carrying_out import carried_out
from elastic.policy.cluster.plan import Plan, uncollected
from elastic.policy.cluster.snapshot import Job, Snapshot
from elastic.policy.scaling.minimums import give_minimums
from elastic.policy.scaling.serving import Serving, Terms

DEFAULT_RESCALE_S: Final = 30.0
"""Where a job does not tell what a change of its size costs: most kinds are started anew."""

DEFAULT_STARVE_AFTER_S: Final = 24 * 3600.0
"""What waits counts more and more; this is for what does not get its turn by that."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """See the module.

    Attributes:
        rescale_s: What a change costs a job that does not tell, nor any other of its kind.
        starve_after_s: How long a job waits before it is served first, and nodes are kept for it,
            to which nobody else comes.
    """

    rescale_s: float = DEFAULT_RESCALE_S
    starve_after_s: float = DEFAULT_STARVE_AFTER_S

    @uncollected
    def plan(self, snapshot: Snapshot) -> Plan:
        """See `Policy.plan`.

        A moment has one plan: sizes that were changed at this very moment were changed by it.
        """
        if any(job.last_scaled_s == snapshot.now_s for job in snapshot.jobs):
            return Plan()
        given = give_minimums(snapshot, self.starve_after_s)
        now = carried_out(snapshot, Plan(given.decisions))
        by_kind = _rescale_by_kind(snapshot.jobs)
        terms = Terms(self.rescale_s, self.starve_after_s, by_kind)
        served = Serving(terms, now, given).plan()
        decisions = [*given.decisions, *served.decisions]
        placed = {job.key: job.workers.placed for job in snapshot.jobs}
        # What gives room comes before what takes it.
        decisions.sort(key=lambda each: each.replicas >= placed[each.job])
        return Plan(tuple(decisions), (*given.notes, *served.notes))


def _rescale_by_kind(jobs: Iterable[Job]) -> dict[str, float]:
    """What changes cost the jobs of each kind that tell it, in the mean."""
    told: dict[str, list[float]] = {}
    for job in jobs:
        if job.telling.rescale_s is not None:
            told.setdefault(job.kind, []).append(job.telling.rescale_s)
    return {kind: fmean(costs) for kind, costs in told.items()}
