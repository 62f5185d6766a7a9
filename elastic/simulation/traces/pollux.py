"""The workloads of Pollux: which application, with how many GPUs and which batch.

Source: github.com/petuum/adaptdl, branch osdi21-artifact, `workloads*/workload-*.csv` and
`traces/APPLICATION/`; Qiao et al., "Pollux", OSDI 2021. A workload has no durations: they follow
from the measured profiles of the applications.
"""

import csv
import io
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from elastic.errors import DescriptionError
from elastic.policy.cluster import GPU, MILLI
from elastic.simulation.traces.common import Elasticity, Recorded, Row, rows, workload_of
from elastic.simulation.workload import Measured, Workload

COLUMNS: Final = frozenset({"name", "time", "application", "num_replicas", "batch_size"})

_GPUS_A_NODE: Final = 4
_MAX_LOCAL: Final = {"yolov3": 8}
"""What fits into a GPU, where more was measured."""

Times = tuple[float, float]
"""Seconds of a step, and those of them that are spent in waiting for gradients of others."""


class Profile:
    """What was measured of one application.

    Args:
        name: Of the application.
        texts: Its files by their names.

    Raises:
        DescriptionError: One is missing, or has no such columns.
    """

    def __init__(self, name: str, texts: Mapping[str, str]) -> None:
        self._name, self._texts = name, texts
        self._times: dict[tuple[int, int], list[tuple[float, Times]]] = defaultdict(list)
        exact: dict[str, list[tuple[float, Times]]] = defaultdict(list)
        for row in rows(self._text("placements.csv"), f"{name}/placements.csv"):
            exact["".join(sorted(row.text("placement")))].append(_times(row))
        for row in rows(self._text("scalability.csv"), f"{name}/scalability.csv"):
            size = int(row.number("num_nodes")), int(row.number("num_replicas"))
            self._times[size].append(_times(row))
        for placement, times in exact.items():
            counts = [int(each) for each in placement]
            # Full nodes first, as whoever places a job of this size alone would have it.
            if _is_packed(counts):
                self._times[len(counts), sum(counts)] = times

    def duration_s(self, replicas: int, batch: int) -> float:
        """How long all epochs take with that batch.

        Raises:
            DescriptionError: Nothing of the kind was measured.
        """
        return self._iterations(batch) * self._step_s(replicas, batch)

    def speed(self, batch: int, largest: int) -> Measured:
        """Steps a second by the number of replicas, with the batch of the user."""
        measured = {
            replicas: 1.0 / self._step_s(replicas, batch)
            for replicas in range(1, largest + 1)
            if (-(-replicas // _GPUS_A_NODE), replicas) in self._times
        }
        return Measured.of(measured)

    def _iterations(self, batch: int) -> float:
        """Of the last epoch; its number is the same for all batches of an application."""
        *_, last = rows(self._text(f"validation-{batch}.csv"), f"{self._name}, batch {batch}")
        return last.number("iteration")

    def _step_s(self, replicas: int, batch: int) -> float:
        size = -(-replicas // _GPUS_A_NODE), replicas
        if size not in self._times:
            raise DescriptionError(f"{self._name} was not measured with {replicas} replicas")
        curve = sorted(self._times[size])
        most = min(curve[-1][0], _MAX_LOCAL.get(self._name, curve[-1][0]))
        steps = -(-batch // (most * replicas))
        step_s, sync_s = _between(curve, batch / (steps * replicas))
        return step_s + (steps - 1) * (step_s - sync_s)

    def _text(self, file: str) -> str:
        if file not in self._texts:
            raise DescriptionError(f"the profiles have no {self._name}/{file}")
        return self._texts[file]


def _is_packed(counts: list[int]) -> bool:
    return sum(count < _GPUS_A_NODE for count in counts) <= 1


def _times(row: Row) -> tuple[float, Times]:
    return row.number("local_bsz"), (row.number("step_time"), row.number("sync_time"))


def _between(curve: list[tuple[float, Times]], local_batch: float) -> Times:
    """Linear between two measurements; of the nearest one beyond them."""
    batches = [batch for batch, _ in curve]
    at = bisect_left(batches, local_batch)
    if at == 0 or at == len(curve):
        return curve[min(at, len(curve) - 1)][1]
    (low, (step_low, sync_low)), (high, (step_high, sync_high)) = curve[at - 1], curve[at]
    part = (local_batch - low) / (high - low)
    return step_low + part * (step_high - step_low), sync_low + part * (sync_high - sync_low)


def read_workload(
    text: str, name: str, elasticity: Elasticity, profiles: Mapping[str, str]
) -> Workload:
    """The jobs of a workload, each worker with one GPU.

    Args:
        text: All of the file.
        name: Of the file, for errors.
        elasticity: The sizes that are assumed; speeds are those that were measured.
        profiles: Texts by `APPLICATION/FILE`.

    Raises:
        DescriptionError: An application has no profile.
    """
    if not profiles:
        raise DescriptionError(
            f"{name} has no durations: --profiles names the folder of the applications' profiles"
        )
    known = {each.partition("/")[0] for each in profiles}
    applications = {
        app: Profile(
            app,
            {
                path.partition("/")[2]: profiles[path]
                for path in profiles
                if path.startswith(f"{app}/")
            },
        )
        for app in {row["application"] for row in csv.DictReader(io.StringIO(text))} & known
    }
    recorded = []
    for row in rows(text, name):
        app, replicas = row.text("application"), int(row.number("num_replicas"))
        if app not in applications:
            raise DescriptionError(f"{name}: the profiles have no application {app}")
        batch, profile = int(row.number("batch_size")), applications[app]
        _, largest = elasticity.range(replicas)
        recorded.append(
            Recorded(
                row.text("name"),
                row.number("time"),
                profile.duration_s(replicas, batch),
                replicas,
                {GPU: MILLI},
                speed=profile.speed(batch, largest),
            )
        )
    return workload_of(recorded, elasticity, name)
