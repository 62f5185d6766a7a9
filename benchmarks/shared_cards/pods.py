"""Nodes, and the pods of which those that come are drawn: published ones, or made like them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from elastic.policy.cluster import CPU, GPU, MEMORY, MILLI, Group, Job, JobPhase, Node, Share
from elastic.simulation.traces.alibaba_2023 import read_nodes, read_workload
from elastic.simulation.traces.common import Elasticity

NODES: Final = "openb_node_list_gpu_node.csv"
PODS: Final = "openb_pod_list_default.csv"

_GI: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Cards:
    """A cluster, and pods that may run on any of its nodes.

    Attributes:
        pods: Jobs of one worker each, in the order in which they came.
    """

    nodes: tuple[Node, ...]
    pods: tuple[Job, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of all cards."""
        return sum(node.allocatable[GPU] for node in self.nodes)

    def drawn(self, draw: random.Random, milli: float) -> Iterator[Job]:
        """Pods that ask for so many thousandths together."""
        while milli > 0:
            pod = draw.choice(self.pods)
            milli -= asked(pod)
            yield pod


def asked(pod: Job) -> int:
    """The thousandths of cards that a pod asks for."""
    workers = pod.workers
    return workers.share.milli if workers.share is not None else workers.requests.get(GPU, 0)


def read(folder: Path) -> Cards:
    """The published ones.

    Raises:
        OSError: They are not there.
    """
    nodes = read_nodes((folder / NODES).read_text(), NODES)
    workload = read_workload((folder / PODS).read_text(), PODS, Elasticity())
    return Cards(nodes, tuple(each.job for each in workload.submissions))


_NODES: Final[tuple[tuple[tuple[int, int, int], float], ...]] = (
    ((8, 96, 384), 0.5), ((2, 104, 512), 0.32), ((2, 16, 120), 0.1), ((4, 32, 128), 0.05),
    ((1, 8, 32), 0.03),
)  # fmt: skip
"""Cards, cores and GiB of nodes, and how many there are of each."""

_PODS: Final[tuple[tuple[tuple[int, int, int], float], ...]] = (
    ((8000, 88, 320), 0.01), ((1000, 11, 48), 0.3), ((1000, 3, 5), 0.18), ((0, 12, 56), 0.08),
    ((0, 32, 48), 0.05), ((810, 3, 5), 0.13), ((470, 11, 46), 0.09), ((320, 8, 29), 0.05),
    ((650, 4, 22), 0.04), ((230, 4, 14), 0.03), ((160, 4, 10), 0.02), ((590, 8, 29), 0.02),
)  # fmt: skip
"""Thousandths of cards, cores and GiB of pods, and how many there are of each."""


def made(num_nodes: int, seed: int) -> Cards:
    """A small cluster and 500 pods whose sizes are about those that were published."""
    draw = random.Random(seed)
    kinds, weights = zip(*_NODES, strict=True)
    nodes = tuple(
        Node(f"n{number:04}", {GPU: cards * MILLI, CPU: cores * MILLI, MEMORY: gib * _GI})
        for number, (cards, cores, gib) in enumerate(draw.choices(kinds, weights, k=num_nodes))
    )
    sizes, shares = zip(*_PODS, strict=True)
    drawn = enumerate(draw.choices(sizes, shares, k=500))
    return Cards(nodes, tuple(_pod(f"p{number:04}", *size) for number, size in drawn))


def _pod(name: str, milli: int, cores: int, gib: int) -> Job:
    requests = {CPU: cores * MILLI, MEMORY: gib * _GI}
    share = Share(milli) if 0 < milli < MILLI else None
    if share is None and milli:
        requests[GPU] = milli
    workers = Group(1, 1, 0, requests, requests, share=share)
    return Job(name, "team", "TFJob", workers, 0.0, JobPhase.WAITING, waiting_since_s=0.0)


def arriving(pod: Job, number: int) -> Job:
    """The same pod, as the one of so many that comes now."""
    at_s = float(number)
    return replace(pod, name=f"pod-{number:06}", submitted_s=at_s, waiting_since_s=at_s)
