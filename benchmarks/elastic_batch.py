"""What a job comes to that chooses its batch, beside one of the smallest batch.

    python -m benchmarks.elastic_batch [--optimizers NAME …] [--seeds N] [--epochs N] [--save]

The zoo's digits, by two workers that are threads of this process; master, ledger and gRPC are real.
"""

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.processes import ROOT
from benchmarks.report import RESULTS, describe_machine
from elastic.spec.status import JobPhase, JobStatus

# Jobs within one process are made for the tests.
sys.path += [str(ROOT / "tests"), str(ROOT / "model_zoo"), str(ROOT / "benchmarks" / "models")]

MODELS: Final = {
    "SGD": (ROOT / "benchmarks" / "models", "digits_sgd.CustomModel"),
    "Adam": (ROOT / "model_zoo", "digits.digits_torch.CustomModel"),
}
BATCHES: Final[dict[str, dict[str, Any]]] = {
    "32": {"grads_to_wait": 2},
    "32:256": {"elastic_batch": "32:256"},
}
HEADER: Final = ("optimizer", "batch", "at the end", "updates", "loss of the last epoch",
                 "accuracy", "samples/s")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the jobs of all seeds came to."""

    optimizer: str
    batch: str
    statuses: tuple[JobStatus, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        told = self.statuses
        last = [32 if each.scaling.batch is None else each.scaling.batch.records for each in told]
        return (
            self.optimizer,
            self.batch,
            ", ".join(map(str, last)),
            ", ".join(str(each.progress.model_version) for each in told),
            _spread([each.epochs[-1].loss for each in told], 4),
            _spread([each.metrics["accuracy"] for each in told], 3),
            _spread([statistics.mean(e.samples_per_s for e in each.epochs) for each in told], 0),
        )


def measure(optimizer: str, batch: str, seeds: int, epochs: int) -> Outcome:
    """Run one job for each seed."""
    statuses = tuple(_run(optimizer, BATCHES[batch], seed, epochs) for seed in range(seeds))
    return Outcome(optimizer, batch, statuses)


def _run(optimizer: str, settings: dict[str, Any], seed: int, epochs: int) -> JobStatus:
    from support.datasets import prepared_dir
    from support.local_job import make_spec
    from support.thread_job import run_job

    zoo, model_def = MODELS[optimizer]
    data = prepared_dir("digits")
    spec = make_spec(
        model_def, data / "train.npz", model_zoo=str(zoo),
        evaluation_data_dir=str(data / "test.npz"), seed=seed, minibatch_size=16,
        num_epochs=epochs, num_workers=2, records_per_task=None, recovery_interval=30, **settings,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="elastic-batch-") as folder:
        status = run_job(spec, Path(folder))
    if status.phase is not JobPhase.SUCCEEDED:
        raise RuntimeError(f"the job ended as {status.phase}: {status.message}")
    return status


def _spread(values: Sequence[float], digits: int) -> str:
    mean, low, high = statistics.mean(values), min(values), max(values)
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _line(row: Sequence[str]) -> str:
    return f"| {' | '.join(row)} |"


def section(outcomes: Sequence[Outcome], command: str) -> str:
    """For RESULTS.md."""
    machine = describe_machine()
    about = ", ".join(f"{key} {value}" for key, value in machine.items() if key != "date")
    rows = [_line(each.cells) for each in outcomes]
    head = [f"## {machine['date']}, elastic batch", "", f"`{command}`, on {about}", ""]
    return "\n".join([*head, _line(HEADER), _line(["---"] * len(HEADER)), *rows, ""])


def main(arguments: Sequence[str]) -> None:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic_batch")
    parser.add_argument("--optimizers", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--save", action="store_true", help="append to RESULTS.md")
    parsed = parser.parse_args(arguments)
    print(_line(HEADER), flush=True)
    outcomes = []
    for optimizer, batch in product(parsed.optimizers, BATCHES):
        outcomes.append(measure(optimizer, batch, parsed.seeds, parsed.epochs))
        print(_line(outcomes[-1].cells), flush=True)
    if parsed.save:
        command = shlex.join(["python", "-m", "benchmarks.elastic_batch", *arguments])
        with RESULTS.open("a") as file:
            file.write("\n" + section(outcomes, command))


if __name__ == "__main__":
    main(sys.argv[1:])
