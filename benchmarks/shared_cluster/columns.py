"""The policies of the experiment, as functions from simulated jobs to shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.shared_cluster.jobs import (
    Measured,
    SimulatedJob,
    gain,
)
from benchmarks.shared_cluster.profiles import SINGLE
from benchmarks.shared_cluster.simulation import GPUS_A_NODE, NODES, Share
from elastic.policy.cluster import (
    GPU,
    MILLI,
    ElasticBatch,
    Gradients,
    Group,
    Job,
    JobPhase,
    Node,
    Shown,
    Snapshot,
    Speed,
    Telling,
)
from elastic.policy.scaling.goodput import Goodput
from elastic.policy.scaling.offers import shown_by

_NODES: Final = tuple(Node(f"n{index:02}", {GPU: GPUS_A_NODE * MILLI}) for index in range(NODES))
_ONE_GPU: Final = {GPU: MILLI}


@dataclass(frozen=True, slots=True)
class GoodputColumn:
    """`goodput` on the experiment's cluster.

    Attributes:
        knows_work: Whether jobs tell how many samples they still have to be trained on: with their
            users' batches exactly, and where a batch may be chosen those that the smallest would
            take. They do so from their submission on, as a master knows its epochs and records
            before it has any worker. All tell what they measured at the sizes and batches they
            ran at, with a batch that may be chosen their gradients too, and nothing else.
        has_elastic_batch: Whether the policy may choose batches, or the users' are kept.
        rescale_s: What a change of size costs, which jobs tell.
        is_stoppable: Whether running jobs may be stopped, as the published policies do.
        is_movable: Whether those that are not stopped may be moved, as they do too.
        is_alike_known: Whether jobs of the same application are known to be alike, so that one
            goes by the speeds that all of them have told.
    """

    knows_work: bool
    has_elastic_batch: bool
    rescale_s: float
    is_stoppable: bool = True
    is_movable: bool = True
    is_alike_known: bool = True

    def __call__(self, now_s: float, jobs: Sequence[SimulatedJob]) -> dict[str, Share]:
        """See `Decide`."""
        running = [job for job in jobs if job.ended_s is None]
        told = {job.request.name: self._told(job) for job in running}
        by_key = {told[job.request.name].key: job for job in running}
        snapshot = Snapshot(now_s, _NODES, tuple(told.values()), shown=self._shown(jobs))
        plan = Goodput().plan(snapshot)
        shares = {
            job.request.name: Share(job.placement, job.asked_batch)
            for job in running
            if job.placement
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

    def _shown(self, jobs: Sequence[SimulatedJob]) -> dict[str, Shown]:
        """What is known of jobs that have ended, by what they are alike in."""
        if not self.is_alike_known:
            return {}
        ended = [job for job in jobs if job.ended_s is not None]
        measured: dict[str, dict[tuple[int, int, int], Measured]] = {}
        tellings: dict[str, list[Telling]] = {}
        for job in ended:
            application = job.request.application
            measured.setdefault(application, {}).update(job.measured)
            tellings.setdefault(application, []).append(self._measured(job, job.asked_batch))
        return {
            application: replace(shown_by(tellings[application]), speeds=_speeds(each))
            for application, each in measured.items()
        }

    def _worth(self, job: SimulatedJob) -> float:
        """Samples of this batch that are worth a step of the smallest now; of that where any may
        be chosen.
        """
        smallest = job.profile.min_batch
        if self._is_elastic(job) or job.gradients is None:
            return smallest
        batch = job.asked_batch or job.request.batch
        return batch / gain(*job.gradients, batch / smallest)

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
            program=request.application if self.is_alike_known else None,
        )

    def _telling(self, job: SimulatedJob, batch: int) -> Telling:
        telling = self._measured(job, batch)
        if self.knows_work:
            left, total = self._samples(job, batch)
            telling = replace(telling, remaining_samples=left, total_samples=total)
        if job.gradients is None:
            return telling
        return replace(telling, trained_samples=job.progress * self._worth(job))

    def _measured(self, job: SimulatedJob, batch: int) -> Telling:
        """What a job tells but for its work, of which those that have ended have none."""
        telling = Telling(
            speeds=_speeds(job.measured),
            rescale_s=self.rescale_s,
            global_batch_size=batch,
            max_local_batch=job.profile.max_local_batch,
        )
        if self._is_elastic(job):
            sizes = job.profile.min_batch, job.profile.max_batch
            batches = ElasticBatch(*sizes)
            if job.gradients is not None:
                sqr, var = job.gradients
                growth = job.noise_growth.told
                batches = ElasticBatch(*sizes, sqr, var, 1, job.gradients_at, growth)
            telling = replace(telling, elastic_batch=batches)
            if job.first_gradients is not None:
                sqr, var = job.first_gradients
                # The profiles' variance is that of a minibatch of the smallest size.
                first = Gradients(sqr, var * job.profile.min_batch)
                telling = replace(telling, first_gradients=first)
        return telling

    def _samples(self, job: SimulatedJob, batch: int) -> tuple[float, float]:
        """That are left, and of the whole job."""
        if not self._is_elastic(job):
            return job.samples_left(batch), job.samples(batch)
        smallest = job.profile.min_batch
        return job.remaining * smallest, job.profile.ends[-1] * smallest


def _speeds(measured: Mapping[tuple[int, int, int], Measured]) -> tuple[Speed, ...]:
    return tuple(
        Speed(seen.replicas, seen.nodes, seen.batch / seen.step_s, seen.asked_batch, seen.compute_s)
        for seen in measured.values()
    )
