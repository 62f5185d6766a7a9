"""What jobs learn from data that is sorted by class or target, beside shuffled plain loops.

    python -m benchmarks.sorted_sets [--sets NAME …] [--frameworks NAME …] [--seeds N]
        [--processes] [--save]

Every job runs as tests run theirs: master, ledger, readers and gRPC are real, and workers are
threads of this process, or with `--processes` processes. Loops and jobs get the same module, the
same records and as many epochs; a loop's minibatch is what a job makes one update of. Where two
workers' gradients are late, so are the loop's (`late_loops.py`).
"""

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

from benchmarks.processes import ROOT
from benchmarks.report import RESULTS, describe_machine
from benchmarks.sorted_data import SETS, SortedSet
from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.spec.status import JobPhase, JobStatus

# Jobs within one process, and plain loops of models of the zoo, are made for the tests.
sys.path += [str(ROOT / "tests"), str(ROOT / "model_zoo"), str(ROOT / "benchmarks" / "models")]

Records: TypeAlias = list[Any]

FRAMEWORKS: Final = ("torch", "keras")
MODES: Final[Mapping[str, Mapping[str, Any]]] = {
    "1 worker": {"num_workers": 1},
    "1 worker, asynchronous": {"num_workers": 1, "use_async": True},
    "1 worker, local updates": {"num_workers": 1, "get_model_steps": 4},
    "2 workers": {"num_workers": 2},
    "2 workers, groups of 1": {"num_workers": 2, "grads_to_wait": 1},
    "2 workers, asynchronous": {"num_workers": 2, "use_async": True},
    "2 workers, local updates": {"num_workers": 2, "get_model_steps": 4},
    "1 worker, --shuffle none": {"num_workers": 1, "shuffle": "none"},
    "2 workers, --shuffle none": {"num_workers": 2, "shuffle": "none"},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one mode came to on one set.

    Attributes:
        set_name: Of the data.
        framework: Of job and loop.
        mode: Of the job.
        metric: What the values are.
        job: The metric of the held-out records, for each seed.
        loop: That of the plain loop.
    """

    set_name: str
    framework: str
    mode: str
    metric: str
    job: tuple[float, ...]
    loop: tuple[float, ...]

    @property
    def verdict(self) -> str:
        """Whether the mean of the jobs is within the spread of the loops, or on which side."""
        mean, low, high = statistics.mean(self.job), min(self.loop), max(self.loop)
        # What rounding does to a mean is no difference.
        if low - 1e-6 <= mean <= high + 1e-6:
            return "within"
        return "better" if (mean < low) == (self.metric == "mse") else "worse"


class Bench:
    """One set with one framework, whose plain loops are run once."""

    def __init__(self, data: SortedSet, framework: str, folder: Path, num_seeds: int) -> None:
        self._data = data
        self._framework = framework
        self._folder = folder
        self._seeds = range(num_seeds)
        self._loop = cache(self._run_loops)
        data.prepare(folder)

    def measure(self, mode: str, in_processes: bool) -> Outcome:
        """Run a mode with every seed."""
        settings = MODES[mode]
        job = tuple(self._run_job(seed, settings, in_processes) for seed in self._seeds)
        loop = self._loop(*_loop_of(settings))
        return Outcome(self._data.name, self._framework, mode, self._data.metric, job, loop)

    def _run_job(self, seed: int, settings: Mapping[str, Any], in_processes: bool) -> float:
        from support.local_job import make_spec

        module = self._module()
        model = "CustomModel" if hasattr(module, "CustomModel") else "custom_model"
        spec = make_spec(
            f"{module.__name__}.{model}", self._file("train"), model_zoo=str(self._data.zoo),
            evaluation_data_dir=str(self._file("test")), seed=seed,
            minibatch_size=self._data.minibatch_size, num_epochs=self._data.num_epochs,
            records_per_task=None, recovery_interval=30, **settings,
        )  # fmt: skip
        status = _run(spec, in_processes)
        if status.phase is not JobPhase.SUCCEEDED:
            raise RuntimeError(f"the job ended as {status.phase}: {status.message}")
        return status.metrics[self._data.metric]

    def _run_loops(self, num_minibatches: int, own_steps: int | None) -> tuple[float, ...]:
        import keras
        import torch
        from zoo import plain_loops

        from benchmarks import late_loops

        def named(name: str, loops: ModuleType = plain_loops) -> Any:
            return getattr(loops, f"{name}_{self._framework}")

        module, values = self._module(), []
        build = getattr(module, "CustomModel", None) or module.custom_model
        size = num_minibatches * self._data.minibatch_size
        for seed in self._seeds:
            torch.manual_seed(seed)
            keras.utils.set_random_seed(seed)
            about = self._records("train"), self._data.num_epochs, size, seed
            if own_steps is None:
                model = build()
                named("train")(module, model, *about)
            else:
                model = named("train", late_loops)(module, build, *about, own_steps)
            metrics = named("evaluate")(module, model, self._records("test"))
            values.append(metrics[self._data.metric])
        return tuple(values)

    def _module(self) -> ModuleType:
        from support.datasets import zoo_module

        return zoo_module(self._data.model.format(self._framework))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.{self._data.suffix}"

    def _records(self, name: str) -> Records:
        reader = open_reader(str(self._file(name)), 1000, {}, None)
        shards = reader.create_shards()
        return [
            record
            for shard in shards
            for record in reader.read_records(ReadTask(shard, shard.start, shard.end))
        ]


def _run(spec: Any, in_processes: bool) -> JobStatus:
    from support.local_job import LocalJob
    from support.thread_job import run_job

    with tempfile.TemporaryDirectory(prefix="elastic-sorted-") as folder:
        if not in_processes:
            return run_job(spec, Path(folder))
        with LocalJob(spec, Path(folder)) as job:
            return job.succeed()


def _loop_of(settings: Mapping[str, Any]) -> tuple[int, int | None]:
    """A mode's plain loop: minibatches of an update, and own steps where gradients are late."""
    is_late = bool({"use_async", "get_model_steps"} & settings.keys())
    if settings["num_workers"] == 1:
        return 1, None
    if is_late:
        return 1, settings.get("get_model_steps", 1)
    return settings.get("grads_to_wait", 2), None


HEADER: Final = ("data", "framework", "job", "metric", "jobs: mean [min, max]",
                 "plain loops: mean [min, max]", "jobs' mean")  # fmt: skip


def cells(outcome: Outcome) -> tuple[str, ...]:
    """A row of the table."""
    first = (outcome.set_name, outcome.framework, outcome.mode, outcome.metric)
    return *first, _spread(outcome.job), _spread(outcome.loop), outcome.verdict


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f} [{min(values):.3f}, {max(values):.3f}]"


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def section(outcomes: Sequence[Outcome], command: str, num_seeds: int) -> str:
    """For RESULTS.md."""
    machine = describe_machine()
    about = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "date")
    lines = [
        f"## {machine['date']}, sorted data",
        "",
        f"`{command}`, {num_seeds} seeds, on {about}",
        "",
        _line(HEADER),
        _line(["---"] * len(HEADER)),
        *(_line(cells(each)) for each in outcomes),
    ]
    return "\n".join([*lines, ""])


def main(arguments: Sequence[str]) -> None:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sorted_sets")
    names = [each.name for each in SETS]
    parser.add_argument("--sets", nargs="*", choices=names, default=names)
    parser.add_argument(
        "--frameworks", nargs="*", choices=["torch", "keras"], default=["torch", "keras"]
    )
    parser.add_argument("--modes", nargs="*", choices=list(MODES), default=list(MODES))
    parser.add_argument("--seeds", type=int, default=5, help="of jobs, and of plain loops")
    parser.add_argument("--processes", action="store_true", help="workers are processes")
    parser.add_argument("--save", action="store_true", help="append to RESULTS.md")
    parsed = parser.parse_args(arguments)
    print(_line(HEADER), flush=True)
    outcomes = []
    for data, framework in product(SETS, parsed.frameworks):
        if data.name not in parsed.sets:
            continue
        with tempfile.TemporaryDirectory(prefix="elastic-sorted-") as folder:
            bench = Bench(data, framework, Path(folder), parsed.seeds)
            for mode in parsed.modes:
                outcomes.append(bench.measure(mode, parsed.processes))
                print(_line(cells(outcomes[-1])), flush=True)
    if parsed.save:
        command = shlex.join(["python", "-m", "benchmarks.sorted_sets", *arguments])
        with RESULTS.open("a") as file:
            file.write("\n" + section(outcomes, command, parsed.seeds))


if __name__ == "__main__":
    main(sys.argv[1:])
