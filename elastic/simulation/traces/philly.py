"""Philly, Microsoft's clusters of 2017.

Source: github.com/msr-fiddle/philly-traces, `cluster_job_log` (JSON) and `cluster_machine_list`;
Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads",
ATC 2019.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from elastic.errors import DescriptionError
from elastic.policy.cluster import GPU, MILLI, Node
from elastic.simulation.traces.common import Elasticity, Recorded, moment_s, rows, workload_of
from elastic.simulation.workload import Workload

NODE_COLUMNS: Final = ("machineId", "number of GPUs", "single GPU mem")

_UNKNOWN: Final = frozenset({"", "None", None})


def is_log(document: Any) -> bool:
    """Whether a JSON document looks like a `cluster_job_log`."""
    if not isinstance(document, list) or not document:
        return False
    first = document[0]
    return isinstance(first, Mapping) and {"jobid", "attempts", "submitted_time"} <= first.keys()


def read_workload(document: Any, name: str, elasticity: Elasticity) -> Workload:
    """The jobs of a `cluster_job_log` that ran: a worker for each GPU of the last attempt.

    A job's duration is that of all attempts together; one whose end was not logged is left out.

    Raises:
        DescriptionError: A job has not the documented keys.
    """
    return workload_of(list(_recorded(document, name)), elasticity, name)


def _recorded(document: Any, name: str) -> Iterator[Recorded]:
    for index, job in enumerate(document):
        try:
            job_id, submitted = str(job["jobid"]), str(job["submitted_time"])
            attempts = [(_duration_s(each, name), _gpus(each)) for each in job["attempts"]]
        except (KeyError, TypeError) as error:
            raise DescriptionError(
                f"{name}, job {index}: {error}: expected jobid, submitted_time and attempts with "
                "start_time, end_time and detail"
            ) from error
        duration_s = sum(duration_s for duration_s, _ in attempts)
        gpus = next((gpus for _, gpus in reversed(attempts) if gpus), 0)
        if duration_s > 0 and gpus and submitted not in _UNKNOWN:
            submitted_s = moment_s(submitted, f"{name}, job {job_id}")
            yield Recorded(job_id, submitted_s, duration_s, gpus, {GPU: MILLI})


def _duration_s(attempt: Mapping[str, Any], name: str) -> float:
    begin, end = attempt["start_time"], attempt["end_time"]
    if begin in _UNKNOWN or end in _UNKNOWN:
        return 0.0
    return max(0.0, moment_s(str(end), name) - moment_s(str(begin), name))


def _gpus(attempt: Mapping[str, Any]) -> int:
    return sum(len(each["gpus"]) for each in attempt["detail"])


_SIZE: Final = re.compile(r"\s*(\d+)\s*GB\s*", re.IGNORECASE)


def read_nodes(text: str, name: str) -> tuple[Node, ...]:
    """The machines of a `cluster_machine_list`."""
    nodes = []
    for row in rows("\n".join(text.splitlines()[1:]), name, NODE_COLUMNS):
        machine, gpus, memory = (row.text(each) for each in NODE_COLUMNS)
        size = _SIZE.fullmatch(memory)
        if not gpus.isdecimal():
            raise DescriptionError(f"{name}: machine {machine} has {gpus!r} GPUs")
        memory_bytes = int(size[1]) << 30 if size else None
        allocatable = {GPU: int(gpus) * MILLI}
        nodes.append(Node(machine, allocatable, card_memory_bytes=memory_bytes))
    return tuple(nodes)
