"""Alibaba's cluster of 2023, whose pods have parts of GPUs.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2023, `openb_pod_list_*.csv` and
`openb_node_list_*.csv`; Weng et al., "Beware of Fragmentation", ATC 2023.
"""

from typing import Final

from elastic.errors import DescriptionError
from elastic.policy.cluster import CPU, GPU, MEMORY, MILLI, Node, Rules, Share
from elastic.simulation.traces.common import Elasticity, Recorded, Row, rows, workload_of
from elastic.simulation.workload import Workload

COLUMNS: Final = frozenset({"cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time"})
NODE_COLUMNS: Final = frozenset({"sn", "cpu_milli", "memory_mib", "gpu", "model"})

_MODEL: Final = "model"
_MIB_BITS: Final = 20


def read_workload(text: str, name: str, elasticity: Elasticity) -> Workload:
    """The pods of a list, each a job of one worker that holds what it has until it was deleted.

    Raises:
        DescriptionError: A pod may run on several models of GPUs, which is not known here.
    """
    return workload_of([_pod(row) for row in rows(text, name)], elasticity, name)


def _pod(row: Row) -> Recorded:
    requests = {
        CPU: int(row.number("cpu_milli")),
        MEMORY: int(row.number("memory_mib")) << _MIB_BITS,
    }
    gpus, milli = int(row.number_or("num_gpu", 0)), int(row.number_or("gpu_milli", 0))
    share = Share(milli) if gpus == 1 and 0 < milli < MILLI else None
    if gpus and share is None:
        requests[GPU] = gpus * MILLI
    model = row.text("gpu_spec")
    if "|" in model:
        raise DescriptionError(f"{row.text('name')}: gpu_spec={model!r} has several models")
    created_s = row.number("creation_time")
    begun_s = row.number_or("scheduled_time", created_s)
    return Recorded(
        row.text("name"),
        created_s,
        max(0.0, row.number("deletion_time") - begun_s),
        1,
        requests,
        share,
        Rules(node_selector={_MODEL: model} if model else {}),
        holds=True,
    )


def read_nodes(text: str, name: str) -> tuple[Node, ...]:
    """The nodes of a list; their model of GPU is the label `model`."""
    return tuple(
        Node(
            row.text("sn"),
            {
                CPU: int(row.number("cpu_milli")),
                MEMORY: int(row.number("memory_mib")) << _MIB_BITS,
                GPU: int(row.number("gpu")) * MILLI,
            },
            labels={_MODEL: row.text("model")} if row.text("model") else {},
        )
        for row in rows(text, name)
    )
