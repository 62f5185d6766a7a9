"""How much each benchmark does."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Size:
    """Amounts of work, from which the time of a run follows.

    Attributes:
        rounds: Rounds of the measurements that take at most a second or two.
        job_rounds: Rounds of those that run whole jobs.
        pair_rounds: Rounds of two processes against two, which fill a small machine: whatever
            else it does delays one of them, and then both.
        task_counts: Numbers of queued tasks.
        num_tasks: Tasks leased and finished in one measurement.
        payload_mb: Megabytes of float32 parameters.
        num_pushes: Gradients in one measurement.
        num_records: Records of an epoch of the language model.
        num_epochs: Epochs that are timed.
        job_counts: Numbers of jobs of a controller.
        num_failures: Pods of these that fail.
        num_rows: Rows of a table of embeddings.
        num_reads: Minibatches whose rows are read or updated in one measurement.
        num_clicks: Records of an epoch of DeepFM.
        plan_jobs: Numbers of jobs of a cluster that is planned.
        plan_rounds: Clusters of each number.
        day_jobs: Jobs of a simulated day.
        card_rounds: Draws of the pods that come to a cluster of shared cards.
        card_turns: How often some of them have ended, and others come.
        card_nodes: Nodes of that cluster; None for the published one.
        model_params: Arguments of the language model.
    """

    rounds: int
    job_rounds: int
    pair_rounds: int
    task_counts: tuple[int, ...]
    num_tasks: int
    payload_mb: int
    num_pushes: int
    num_records: int
    num_epochs: int
    job_counts: tuple[int, ...]
    num_failures: int
    num_rows: int
    num_reads: int
    num_clicks: int
    plan_jobs: tuple[int, ...]
    plan_rounds: int
    day_jobs: int
    card_rounds: int
    card_turns: int
    card_nodes: int | None = None
    model_params: dict[str, int] = field(default_factory=dict)


FULL: Final = Size(
    rounds=15,
    job_rounds=3,
    pair_rounds=7,
    task_counts=(1_000, 10_000, 100_000, 1_000_000),
    num_tasks=1_000,
    payload_mb=100,
    num_pushes=5,
    num_records=2_048,
    num_epochs=2,
    job_counts=(100, 300, 1_000),
    num_failures=300,
    num_rows=200_000,
    num_reads=10,
    num_clicks=65_536,
    plan_jobs=(100, 1_000, 10_000),
    plan_rounds=3,
    day_jobs=10_000,
    card_rounds=2,
    card_turns=20,
)

QUICK: Final = Size(
    rounds=5,
    job_rounds=2,
    pair_rounds=2,
    task_counts=(1_000, 1_000_000),
    num_tasks=500,
    payload_mb=100,
    num_pushes=3,
    num_records=1_024,
    num_epochs=2,
    job_counts=(30, 100, 300),
    num_failures=100,
    num_rows=100_000,
    num_reads=5,
    num_clicks=32_768,
    plan_jobs=(100, 1_000, 10_000),
    plan_rounds=1,
    day_jobs=10_000,
    card_rounds=1,
    card_turns=20,
)

TINY: Final = Size(
    rounds=1,
    job_rounds=1,
    pair_rounds=1,
    task_counts=(100, 1_000),
    num_tasks=20,
    payload_mb=1,
    num_pushes=1,
    num_records=64,
    num_epochs=1,
    job_counts=(1, 2),
    num_failures=1,
    num_rows=2_000,
    num_reads=1,
    num_clicks=512,
    plan_jobs=(10, 40),
    plan_rounds=1,
    day_jobs=20,
    card_rounds=1,
    card_turns=2,
    card_nodes=6,
    model_params={"d_model": 16, "n_layers": 1, "n_heads": 2},
)
"""For the tests of the benchmarks themselves: the figures mean nothing."""
