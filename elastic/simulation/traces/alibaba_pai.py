"""PAI, Alibaba's platform of 2020: jobs of several roles, with parts of GPUs.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2020, `pai_task_table.csv` and
`pai_machine_spec.csv`; Weng et al., "MLaaS in the Wild", NSDI 2022. The published tables have no
line of column names.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from elastic.policy.cluster import CPU, GPU, MEMORY, MILLI, Group, Node, Share
from elastic.simulation.traces.common import Elasticity, Recorded, Row, rows, workload_of
from elastic.simulation.workload import Workload

COLUMNS: Final = (
    *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
    *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
)
NODE_COLUMNS: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")

_PS: Final = "ps"
_GIB_BITS: Final = 30


def read_workload(text: str, name: str, elasticity: Elasticity, has_names: bool) -> Workload:
    """The jobs of a `pai_task_table.csv`.

    The role with the most instances is that of the workers, `ps` is that of the parameter servers,
    and instances of others are there as long as the job. A job is submitted when its first task is;
    one with a task whose times are not known is left out.

    Args:
        text: All of the file.
        name: Of the file, for errors.
        elasticity: What is assumed of other sizes.
        has_names: Whether the first line has the names of the columns.
    """
    tasks: dict[str, list[Row]] = defaultdict(list)
    for row in rows(text, name, () if has_names else COLUMNS):
        tasks[row.text("job_name")].append(row)
    return workload_of(list(_recorded(tasks.items())), elasticity, name)


def _recorded(jobs: Iterable[tuple[str, list[Row]]]) -> Iterator[Recorded]:
    for name, tasks in jobs:
        if all(each.text("start_time") and each.text("end_time") for each in tasks):
            yield _job(name, tasks)


def _job(name: str, tasks: Sequence[Row]) -> Recorded:
    begun_s = min(each.number("start_time") for each in tasks)
    ended_s = max(each.number("end_time") for each in tasks)
    servers = [each for each in tasks if each.text("task_name") == _PS]
    workers = max(tasks, key=lambda each: (each not in servers, each.number_or("inst_num", 1)))
    others = [each for each in tasks if each is not workers and each not in servers]
    group = _group(workers)
    return Recorded(
        name,
        begun_s,
        ended_s - begun_s,
        group.min,
        group.requests,
        group.share,
        ps=_group(servers[0]) if servers and servers[0] is not workers else None,
        others=tuple(_group(each) for each in others),
    )


def _group(task: Row) -> Group:
    """All instances of a task; CPU and GPU are in hundredths, memory in units of 2^30 bytes."""
    requests = {
        CPU: int(task.number_or("plan_cpu", 0) * MILLI / 100),
        MEMORY: int(task.number_or("plan_mem", 0) * (1 << _GIB_BITS)),
    }
    milli = int(task.number_or("plan_gpu", 0) * MILLI / 100)
    share = Share(milli) if 0 < milli < MILLI else None
    if milli and share is None:
        # Nobody can have one card and a part of another: it is counted as both.
        requests[GPU] = -(-milli // MILLI) * MILLI
    count = max(1, int(task.number_or("inst_num", 1)))
    role = task.text("task_name")
    return Group(count, count, 0, requests, requests, share=share, asked=count, role=role)


def read_nodes(text: str, name: str, has_names: bool) -> tuple[Node, ...]:
    """The machines of a `pai_machine_spec.csv`; their type of GPU is the label `gpu_type`."""
    return tuple(
        Node(
            row.text("machine"),
            {
                CPU: int(row.number("cap_cpu")) * MILLI,
                MEMORY: int(row.number("cap_mem") * (1 << _GIB_BITS)),
                GPU: int(row.number_or("cap_gpu", 0)) * MILLI,
            },
            labels={"gpu_type": row.text("gpu_type")},
        )
        for row in rows(text, name, () if has_names else NODE_COLUMNS)
    )
