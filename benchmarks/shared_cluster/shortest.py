"""The column to compare with: shortest remaining time first, with the sizes that users ask for."""

from collections.abc import Sequence

from benchmarks.shared_cluster.jobs import SimulatedJob, gain, split_batch, step_seconds
from benchmarks.shared_cluster.simulation import GPUS_A_NODE, NODES, Share


def shortest_remaining_first(_now_s: float, jobs: Sequence[SimulatedJob]) -> dict[str, Share]:
    """Run the jobs that end soonest, each at its user's size and batch; see `Decide`.

    It knows the exact time that each job would still take at that size, gains of epochs to come
    included, which nobody knows outside of a simulation. It stops jobs for shorter ones.
    """
    free = NODES * GPUS_A_NODE
    chosen = []
    running = [job for job in jobs if job.ended_s is None]
    for job in sorted(running, key=lambda each: (_remaining_s(each), each.request.name)):
        if job.request.replicas <= free:
            free -= job.request.replicas
            chosen.append(job)
    room = [GPUS_A_NODE] * NODES
    for job in chosen:
        for node, count in job.placement.items():
            room[node] -= count
    return {
        job.request.name: Share(
            job.placement or _packed(job.request.replicas, room), job.request.batch
        )
        for job in chosen
    }


def _packed(replicas: int, room: list[int]) -> dict[int, int]:
    """The tightest node that holds all, else the emptiest ones; takes the room."""
    placement: dict[int, int] = {}
    left = replicas
    while left:
        holding = [node for node in range(NODES) if room[node] >= left]
        if holding:
            node = min(holding, key=lambda each: (room[each], each))
        else:
            node = max(range(NODES), key=lambda each: (room[each], -each))
        placement[node] = min(left, room[node])
        room[node] -= placement[node]
        left -= placement[node]
    return placement


def _remaining_s(job: SimulatedJob) -> float:
    """Seconds that the job would take at its user's size on as few nodes as can be."""
    profile, replicas = job.profile, job.request.replicas
    whole, rest = divmod(replicas, GPUS_A_NODE)
    gpus = [*([GPUS_A_NODE] * whole), *([rest] if rest else [])]
    batch, local, accumulations = split_batch(job.request.batch, replicas, profile)
    step_s = step_seconds(profile, gpus, local, accumulations)
    seconds, progress = 0.0, job.progress
    for epoch in range(job.epoch, len(profile.ends)):
        worth = gain(*profile.gradients(batch, epoch), batch / profile.min_batch)
        seconds += (profile.ends[epoch] - progress) * step_s / worth
        progress = profile.ends[epoch]
    return seconds
