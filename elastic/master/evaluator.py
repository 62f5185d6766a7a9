"""Opens evaluation rounds, and makes results of what they add up."""

import asyncio
import time
from collections.abc import Callable, Sequence

from elastic.master.coordinator import Coordinator
from elastic.master.evaluation import EvaluationRound
from elastic.policy.evaluation import EvaluationRule, is_evaluation_due
from elastic.policy.records import Shard
from elastic.spec.job import JobSpec


class Evaluator:
    """Evaluates versions of the model while later ones are trained, and the last one at the end.

    The version under evaluation is kept whole in a buffer of its own until its round is done.
    """

    def __init__(
        self,
        spec: JobSpec,
        coordinator: Coordinator,
        shards: Sequence[Shard],
        on_results: Callable[[int, int, dict[str, float]], None],
    ) -> None:
        """Keep the parts.

        Args:
            spec: How often to evaluate.
            coordinator: Leases the rounds.
            shards: The evaluation records; none for no evaluation.
            on_results: Told the version, the number of records and the metrics of each round.
        """
        self.results: dict[str, float] = {}
        self.version: int | None = None
        self._spec = spec
        self._rule = EvaluationRule(
            spec.evaluation_steps, spec.evaluation_throttle_secs, spec.evaluation_start_delay_secs
        )
        self._coordinator = coordinator
        self._shards = shards
        self._on_results = on_results
        self._num_rounds = 0
        self._last_version = coordinator.store.version
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._closing: asyncio.Task[None] | None = None

    async def begin_if_due(self) -> None:
        """Open a round on the version just applied, if it is time; the lock is held."""
        now_s = time.monotonic()
        since_last_s = None if self._ended_s is None else now_s - self._ended_s
        if (
            self._shards
            and self._closing is None
            and is_evaluation_due(
                self._rule,
                self._coordinator.store.version,
                self._last_version,
                now_s - self._began_s,
                since_last_s,
            )
        ):
            await self._begin()

    async def evaluate_final(self) -> None:
        """Evaluate the trained model, unless that has been done."""
        if self._closing is not None:
            await self._closing
        store = self._coordinator.store
        if not self._shards or self.version == store.version:
            return
        async with store.lock:
            await self._begin()
        assert self._closing is not None
        await self._closing

    async def _begin(self) -> None:
        store = self._coordinator.store
        round_ = EvaluationRound(self._num_rounds, store.version, self._shards, self._spec)
        self._num_rounds += 1
        self._last_version = store.version
        await store.keep(round_)
        self._coordinator.evaluation = round_
        self._closing = asyncio.create_task(self._close(round_))

    async def _close(self, round_: EvaluationRound) -> None:
        await round_.done.wait()
        self._coordinator.evaluation = None
        self._coordinator.store.release(round_)
        self._ended_s = time.monotonic()
        self._closing = None
        self.version = round_.version
        self.results = self._coordinator.store.model.metric_results(round_.states())
        self._on_results(round_.version, round_.ledger.num_records, self.results)
