"""One simulated job: how far it is, what it holds, how it gets on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.shared_cluster.profiles import Profile
from benchmarks.shared_cluster.workloads import Request
from elastic.policy.updates.elastic_batch import MEMORY, GradientNoise, NoiseGrowth


@dataclass(frozen=True, slots=True)
class Measured:
    """What a job notices of a step at the size it runs at.

    Attributes:
        asked_batch: The global batch that was asked for.
        batch: The one that came of it, in whole examples on each replica.
        step_s: Seconds of a whole step, accumulations included.
        compute_s: Seconds of computing one minibatch, without waiting for other replicas.
    """

    replicas: int
    nodes: int
    asked_batch: int
    batch: int
    step_s: float
    compute_s: float


@dataclass
class SimulatedJob:
    """A training job of the experiment, told what it holds, run for a while.

    Attributes:
        placement: GPUs by node index.
        progress: In steps of the application's smallest batch.
        rescale_s: Time that each change of its placement costs it.
        pause_s: What is left of the last change.
        held_gpu_s: GPUs times seconds held so far.
        measured: What it noticed at each size it ran at, by replicas, nodes, and batch asked for.
        gradients_at: The batch with which it measured its gradients last.
        noise_growth: How their noise grew where the batch was changed.
    """

    request: Request
    profile: Profile
    rescale_s: float
    placement: dict[int, int] = field(default_factory=dict)
    asked_batch: int = 0
    batch: int = 0
    local_batch: int = 0
    accumulations: int = 0
    progress: float = 0.0
    epoch: int = 0
    pause_s: float = 0.0
    held_gpu_s: float = 0.0
    changed_s: float | None = None
    changes: int = 0
    ended_s: float | None = None
    measured: dict[tuple[int, int, int], Measured] = field(default_factory=dict)
    gradients: tuple[float, float] | None = None
    gradients_at: int = 0
    noise_growth: NoiseGrowth = field(default_factory=NoiseGrowth)
    first_gradients: tuple[float, float] | None = None

    @property
    def replicas(self) -> int:
        """GPUs that it holds."""
        return sum(self.placement.values())

    @property
    def remaining(self) -> float:
        """Progress that is still to be made."""
        return self.profile.ends[-1] - self.progress

    def samples(self, batch: int) -> float:
        """Samples of the whole job with one batch, which a user states as epochs and records."""
        return self._samples(batch, 0, 0.0)

    def samples_left(self, batch: int) -> float:
        """Those of them that are still to come, if it keeps to that batch."""
        return self._samples(batch, self.epoch, self.progress)

    def _samples(self, batch: int, epoch: int, progress: float) -> float:
        profile, scale, total = self.profile, batch / self.profile.min_batch, 0.0
        for each, end in enumerate(profile.ends[epoch:], epoch):
            total += (end - progress) * batch / gain(*profile.gradients(batch, each), scale)
            progress = end
        return total

    def place(self, placement: dict[int, int], batch: int, now_s: float) -> None:
        """Take GPUs, or none; another batch alone costs nothing."""
        if placement != self.placement:
            self.placement = placement
            self.changed_s = now_s
            self.changes += 1
            self.pause_s = self.rescale_s
        if placement:
            self.asked_batch = max(batch, self.replicas * self.profile.min_local_batch)
            self.batch, self.local_batch, self.accumulations = split_batch(
                self.asked_batch, self.replicas, self.profile
            )

    def run(self, start_s: float, seconds: float) -> None:
        """Let time pass."""
        if not self.placement or self.ended_s is not None:
            return
        pause = min(self.pause_s, seconds)
        self.pause_s -= pause
        self.held_gpu_s += pause * self.replicas
        now_s, end_s = start_s + pause, start_s + seconds
        while now_s < end_s and self.ended_s is None:
            now_s = self._run_in_epoch(now_s, end_s)

    def _run_in_epoch(self, now_s: float, end_s: float) -> float:
        speed = self._speed()
        left_s = (self.profile.ends[self.epoch] - self.progress) / speed
        if now_s + left_s > end_s:
            self.progress += (end_s - now_s) * speed
            self.held_gpu_s += (end_s - now_s) * self.replicas
            return end_s
        self.held_gpu_s += left_s * self.replicas
        self.progress = self.profile.ends[self.epoch]
        self.epoch += 1
        if self.epoch == len(self.profile.ends):
            self.ended_s = now_s + left_s
        return now_s + left_s

    def _speed(self) -> float:
        """Progress a second, measured while it runs."""
        layout = sorted(self.placement.items())
        gpus = [count for _, count in layout]
        step_s = step_seconds(self.profile, gpus, self.local_batch, self.accumulations)
        before, at = self.gradients, self.gradients_at
        self.gradients = self.profile.gradients(self.batch, self.epoch)
        self.gradients_at = self.batch
        if before is not None:
            then, now = (GradientNoise(*each, MEMORY) for each in (before, self.gradients))
            self.noise_growth = self.noise_growth.after(self.batch / at, then, now)
        self.first_gradients = self.first_gradients or self.gradients
        full_s, sync_s = self.profile.times(gpus, self.local_batch)
        key = (self.replicas, len(gpus), self.asked_batch)
        self.measured[key] = Measured(*key, self.batch, step_s, full_s - sync_s)
        return gain(*self.gradients, self.batch / self.profile.min_batch) / step_s


def gain(grad_sqr: float, grad_var: float, scale: float) -> float:
    """Steps of the smallest batch that one step of a batch `scale` times as large is worth."""
    return (grad_var + grad_sqr) / (grad_var / scale + grad_sqr)


def step_seconds(
    profile: Profile, gpus: Sequence[int], local_batch: int, accumulations: int
) -> float:
    """Seconds of one step: only the last of the accumulated minibatches waits for others."""
    step_s, sync_s = profile.times(gpus, local_batch)
    return step_s + accumulations * (step_s - sync_s)


def split_batch(batch: int, replicas: int, profile: Profile) -> tuple[int, int, int]:
    """Divide a global batch among replicas, as the published runs do.

    Returns:
        The global batch that comes of it, the local batch, the further accumulations. One replica
        accumulates at least once, since the variance of the gradient is measured between parts.
    """
    whole = math.ceil(batch / replicas - 1e-8)
    parts = math.ceil(whole / profile.max_local_batch - 1e-8)
    if replicas == 1 and batch > profile.min_batch:
        parts = max(parts, 2)
    local = min(math.ceil(whole / parts - 1e-8), profile.max_batch // (replicas * parts))
    return replicas * parts * local, local, parts - 1
