"""The policies of the experiment, as functions from simulated jobs to shares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.shared_cluster.jobs import (
    SimulatedJob,
    gain,
)
from benchmarks.shared_cluster.profiles import SINGLE
from benchmarks.shared_cluster.simulation import GPUS_A_NODE, NODES, Share
from elastic.policy.cluster.amounts import GPU, MILLI
from elastic.policy.cluster.goodput import Goodput
from elastic.policy.cluster.snapshot import (
    ElasticBatch,
    Group,
    Job,
    JobPhase,
    Node,
    Snapshot,
    Speed,
    Telling,
)

_NODES: Final = tuple(Node(f"n{index:02}", {GPU: GPUS_A_NODE * MILLI}) for index in range(NODES))
_ONE_GPU: Final = {GPU: MILLI}


@dataclass(frozen=True, slots=True)
class GoodputColumn:
    """`goodput` on the experiment's cluster.

    Attributes:
        knows_work: Whether jobs tell how many samples they still have to be trained on. All tell
            what they measured at the sizes and batches they ran at, and nothing else.
        has_elastic_batch: Whether the policy may choose batches, or the users' are kept.
        rescale_s: What a change of size costs, which jobs tell.
        is_stoppable: Whether running jobs may be stopped, as the published policies do.
        is_movable: Whether those that are not stopped may be moved, as they do too.
    """

    knows_work: bool
    has_elastic_batch: bool
    rescale_s: float
    is_stoppable: bool = True
    is_movable: bool = True

    def __call__(self, now_s: float, jobs: Sequence[SimulatedJob]) -> dict[str, Share]:
        """See `Decide`."""
        by_key = {}
        told = []
        for job in jobs:
            each = self._told(job)
            by_key[each.key] = job
            told.append(each)
        plan = Goodput().plan(Snapshot(now_s, _NODES, tuple(told)))
        shares = {
            job.request.name: Share(job.placement, job.asked_batch) for job in jobs if job.placement
        }
        for decision in plan.decisions:
            job = by_key[decision.job]
            placement = job.placement
            if decision.placement is not None:
                placement = {int(name[1:]): count for name, count in decision.placement.items()}
            batch = decision.global_batch_size or job.asked_batch or self._first_batch(job)
            if placement:
                shares[job.request.name] = Share(placement, batch)
            else:
                shares.pop(job.request.name, None)
        return shares

    def _first_batch(self, job: SimulatedJob) -> int:
        return job.profile.min_batch if self._is_elastic(job) else job.request.batch

    def _is_elastic(self, job: SimulatedJob) -> bool:
        return self.has_elastic_batch and job.request.application not in SINGLE

    def _told(self, job: SimulatedJob) -> Job:
        request, profile = job.request, job.profile
        batch = job.asked_batch or self._first_batch(job)
        top = profile.max_batch if self._is_elastic(job) else request.batch
        most = min(NODES * GPUS_A_NODE, top // profile.min_local_batch)
        if request.application in SINGLE:
            most = 1
        group = Group(
            min=1,
            max=most,
            replicas=job.replicas,
            asked=min(most, request.replicas),
            requests=_ONE_GPU,
            limits=_ONE_GPU,
            placement={f"n{node:02}": count for node, count in job.placement.items()},
        )
        return Job(
            name=request.name,
            namespace="default",
            kind="ElasticTrainJob",
            workers=group,
            submitted_s=request.submitted_s,
            phase=JobPhase.RUNNING if job.placement else JobPhase.WAITING,
            last_scaled_s=job.changed_s,
            telling=self._telling(job, batch),
            is_stoppable=self.is_stoppable,
            is_movable=self.is_movable,
        )

    def _telling(self, job: SimulatedJob, batch: int) -> Telling:
        speeds = tuple(
            Speed(
                seen.replicas,
                seen.nodes,
                seen.batch / seen.step_s,
                seen.asked_batch,
                seen.compute_s,
            )
            for seen in job.measured.values()
        )
        telling = Telling(
            speeds=speeds,
            rescale_s=self.rescale_s,
            global_batch_size=batch,
            max_local_batch=job.profile.max_local_batch,
        )
        if job.gradients is None:
            return telling
        grad_sqr, grad_var = job.gradients
        smallest = job.profile.min_batch
        # What is left of the epochs, in samples of this batch at what they are worth now.
        worth = batch / gain(grad_sqr, grad_var, batch / smallest)
        if self._is_elastic(job):
            worth = smallest
            telling = replace(
                telling,
                elastic_batch=ElasticBatch(smallest, job.profile.max_batch, grad_sqr, grad_var),
            )
        return replace(
            telling,
            trained_samples=job.progress * worth,
            remaining_samples=job.remaining * worth if self.knows_work else None,
        )
