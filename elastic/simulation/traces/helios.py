"""Helios, SenseTime's clusters of 2020.

Source: github.com/S-Lab-System-Group/HeliosData, `cluster_log.csv` and `cluster_gpu_number.csv`;
Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
Datacenters", SC 2021.
"""

from collections.abc import Iterator
from typing import Final

from elastic.policy.cluster import CPU, GPU, MILLI, Node
from elastic.simulation.traces.common import Elasticity, Recorded, Row, rows, workload_of
from elastic.simulation.workload import Workload

COLUMNS: Final = frozenset({"job_id", "gpu_num", "cpu_num", "submit_time", "duration"})
NODE_COLUMNS: Final = frozenset({"date", "total"})

_GPUS, _CPUS = 8, 48
"""Of a node of the cluster Venus, the public one, by the paper."""


def read_workload(text: str, name: str, elasticity: Elasticity) -> Workload:
    """The jobs of a `cluster_log.csv`: a worker for each GPU, or for each node without GPUs."""
    return workload_of(list(_recorded(text, name)), elasticity, name)


def _recorded(text: str, name: str) -> Iterator[Recorded]:
    for row in rows(text, name):
        if row.number("duration") > 0:
            yield _job(row)


def _job(row: Row) -> Recorded:
    gpus, cpus = int(row.number("gpu_num")), int(row.number("cpu_num"))
    workers = gpus or max(1, int(row.number_or("node_num", 1)))
    requests = {CPU: cpus * MILLI // workers} | ({GPU: MILLI} if gpus else {})
    submitted_s = row.moment_s("submit_time")
    return Recorded(row.text("job_id"), submitted_s, row.number("duration"), workers, requests)


def read_nodes(text: str, name: str) -> tuple[Node, ...]:
    """So many nodes of 8 GPUs as `cluster_gpu_number.csv` has on the day with the most."""
    total = max((int(row.number("total")) for row in rows(text, name)), default=0)
    allocatable = {CPU: _CPUS * MILLI, GPU: _GPUS * MILLI}
    return tuple(Node(f"node-{index}", allocatable) for index in range(-(-total // _GPUS)))
