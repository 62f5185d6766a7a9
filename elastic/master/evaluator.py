"""Opens evaluation rounds, makes results of what they add up, and keeps the best version.

Versions are kept for their evaluation, and the best of them, as cuts on disk.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elastic.checkpoints.cuts import (
    Cut,
    clean_up,
    copy_cut,
    cut_path,
    list_cuts,
    prune,
    read_cut,
    remove,
    write_cut,
)
from elastic.checkpoints.destinations import advice, in_words
from elastic.errors import CheckpointError, UserError
from elastic.frameworks.base import Model, load_whole
from elastic.master.callbacks import CallbackRunner
from elastic.master.coordination.rounds import EvaluationRound
from elastic.master.coordination.running import RunningJob
from elastic.master.cutter import Cutter, FencedWriter
from elastic.platforms.base import NO_FENCE, Fence
from elastic.policy.evaluation import Evaluation, EvaluationRule, is_evaluation_due
from elastic.policy.tasks.epochs import Ending, EpochResult
from elastic.policy.tasks.records import Shard
from elastic.spec.job import JobSpec

log = logging.getLogger(__name__)

EVALUATED: Final = "evaluated"
BEST: Final = "best"


class BestVersions:
    """A version is written when its evaluation begins, and copied if it is the best.

    So nothing of it has to stay in memory, and a restarted master can evaluate it again.
    """

    def __init__(
        self,
        recovery_dir: Path,
        checkpoint_dir: Path,
        writing: asyncio.Lock,
        on_event: Callable[[str, str], None],
        fence: Fence = NO_FENCE,
    ) -> None:
        """Keep the parts.

        Args:
            recovery_dir: Where cuts outlive the master.
            checkpoint_dir: Where checkpoints are kept.
            writing: Keeps the order in which cuts are written: one that says that a version is
                under evaluation must not be on disk before that version.
            on_event: Told what could not be kept.
            fence: Of this master: nothing is written that it does not let pass.
        """
        self._writing = writing
        self._evaluated_dir = recovery_dir / EVALUATED
        self._best_dir = checkpoint_dir / BEST
        self._on_event = on_event
        self._writer = FencedWriter(fence)

    async def save(self, cut: Cut) -> None:
        """Write a version that is about to be evaluated, and let go of its rows."""
        try:
            await self._save(cut)
        finally:
            if cut.rows is not None:
                cut.rows.let_go()

    async def _save(self, cut: Cut) -> None:
        folder, write = self._evaluated_dir, self._writer.write
        async with self._writing:
            try:
                path = await write(lambda check: write_cut(folder, cut, check))
                await write(lambda check: prune(folder, 1, path, check))
            except OSError as error:
                self._tell(cut.version, folder, error)

    async def read(self, version: int) -> Cut | None:
        """A version that was saved; None where it cannot be had."""
        try:
            return await asyncio.to_thread(read_cut, cut_path(self._evaluated_dir, version))
        except CheckpointError as error:
            log.warning("%s", error)
            return None

    async def promote(self, version: int) -> bool:
        """Keep a saved version as the best beside the one before; False if that failed."""
        saved, folder = cut_path(self._evaluated_dir, version), self._best_dir
        try:
            await self._writer.write(lambda check: copy_cut(saved, folder, check))
        except OSError as error:
            self._tell(version, self._best_dir, error)
            return False
        return True

    async def forget_before(self, version: int) -> None:
        """Remove what was best before; no cut needs it any more."""
        folder, best = self._best_dir, self.path(version)
        try:
            await self._writer.write(lambda check: prune(folder, 1, best, check))
        except OSError as error:
            log.warning("old versions in %s stay: %s", self._best_dir, in_words(error))

    def go_back(self, version: int) -> None:
        """Remove what the lost future after `version` held for the best, and what was begun."""
        for folder in (self._evaluated_dir, self._best_dir):
            clean_up(folder)
        for path in list_cuts(self._best_dir):
            if path.name > self.path(version).name:
                remove(path)

    async def restore(self, model: Model, version: int) -> None:
        """Have a model hold the best version.

        Raises:
            CheckpointError: It is damaged, or gone.
        """
        cut = await asyncio.to_thread(read_cut, self.path(version))
        load_whole(model, cut.parameters, cut.state)

    def path(self, version: int) -> Path:
        """Where the best version is."""
        return cut_path(self._best_dir, version)

    def _tell(self, version: int, folder: Path, error: OSError) -> None:
        self._on_event(
            "CheckpointFailed",
            f"version {version} could not be kept in {folder} for its evaluation: "
            f"{in_words(error)}: {advice(error)}",
        )


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a version is evaluated for.

    Attributes:
        epoch: The epoch that it is of.
        logs: What that epoch's training came to, if the version is its last; else None.
    """

    epoch: int
    logs: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class _Open:
    """A round under way."""

    round: EvaluationRound
    occasion: Occasion


class Evaluator:
    """Evaluates versions of the model while later ones are trained, and the last one at the end.

    The version under evaluation is kept whole in a buffer of its own until its round is done. One
    round is open at a time: an epoch whose end is to be evaluated waits for the round before.
    """

    def __init__(
        self,
        spec: JobSpec,
        job: RunningJob,
        shards: Sequence[Shard],
        cutter: Cutter,
        callbacks: CallbackRunner,
        best: BestVersions,
        on_results: Callable[[int, int, dict[str, float]], None],
        on_lost: Callable[[int], None],
    ) -> None:
        """Keep the parts.

        Args:
            spec: How often to evaluate.
            job: Whose workers do the rounds.
            shards: The evaluation records; none for no evaluation.
            cutter: Copies the job as it is when a round begins.
            callbacks: Told what has been reached, and may end training.
            best: Keeps versions.
            on_results: Told the version, the number of records and the metrics of each round.
            on_lost: Told of a version whose evaluation a lost master has begun, and nobody can end.
        """
        self.results: dict[str, float] = {}
        self.version: int | None = None
        self._spec = spec
        self._rule = EvaluationRule(
            spec.evaluation_steps, spec.evaluation_throttle_secs, spec.evaluation_start_delay_secs
        )
        at_epoch_ends = spec.evaluation_at_epoch_end or callbacks.watches_metrics
        self._evaluates_epochs = bool(shards) and at_epoch_ends
        self._job = job
        self._shards = shards
        self._cutter = cutter
        self._callbacks = callbacks
        self._best = best
        self._on_results = on_results
        self._on_lost = on_lost
        self._num_rounds = 0
        self._shrunk_to: int | None = None
        self._last_version = job.parameters.version
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._open: _Open | None = None
        self._closing: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._waiting: Occasion | None = None
        self._epoch_begun = -1

    async def begin_if_due(self) -> None:
        """Open a round on the version just applied, if it is time; the lock is held."""
        now_s = time.monotonic()
        since_last_s = None if self._ended_s is None else now_s - self._ended_s
        if (
            self._shards
            and self._open is None
            and is_evaluation_due(
                self._rule,
                self._job.parameters.version,
                self._last_version,
                now_s - self._began_s,
                since_last_s,
            )
        ):
            await self._begin(Occasion(self._epoch()))

    async def epoch_ended(self, result: EpochResult) -> None:
        """Have the version at the end of an epoch evaluated, if that is wanted; the lock is held.

        Where the round before is still open, no further training records are handed out until it
        is done: every epoch's end is evaluated, whatever takes longer.
        """
        occasion = Occasion(result.epoch, result.logs)
        if not self._evaluates_epochs:
            self._end(await self._callbacks.epoch_ended(result.epoch, result.logs))
        elif self._open is None:
            await self._begin(occasion)
        else:
            self._wait(occasion)
        await self._begin_epoch()

    async def evaluate_final(self) -> None:
        """Evaluate the trained model, unless that has been done."""
        await self.settle()
        store = self._job.parameters
        is_decided = self._callbacks.ending is not None and self._callbacks.restores_best
        if not self._shards or self.version == store.version or is_decided:
            return
        async with store.lock:
            await self._begin(Occasion(self._epoch()))
        assert self._closing is not None
        await self._closing

    async def finish(self) -> Path | None:
        """Let callbacks end; where one wants the best version, the model holds it then.

        Returns:
            The checkpoint of that version; None where the model is the one trained last.
        """
        await self.settle()
        store = self._job.parameters
        best = self._callbacks.best if self._callbacks.restores_best else None
        async with store.lock:
            if best is not None:
                # Before the hooks: what they look at, or save, is what is exported.
                await self._best.restore(store.model, best.version)
            await self._callbacks.end()
        return None if best is None else self._best.path(best.version)

    @property
    def final_results(self) -> dict[str, float]:
        """The metrics of the final model."""
        best = self._callbacks.best
        if best is None or not self._callbacks.restores_best:
            return self.results
        return dict(best.metrics)

    async def settle(self) -> None:
        """Wait until nothing is under evaluation."""
        while self._closing is not None and not self._closing.done():
            await self._closing

    async def stop(self) -> None:
        """Let what is under evaluation be; returns when nothing of it is written any more."""
        if self._closing is None or self._open is None:
            return
        if self._saving is not None:
            await asyncio.wait([self._saving])
        if not self._open.round.done.is_set():
            self._closing.cancel()
        await asyncio.gather(self._closing, return_exceptions=True)

    # -- cuts ----------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """What callbacks have seen and what is under evaluation; the lock is held."""
        under_way = self._open
        return {
            **self._callbacks.snapshot(),
            "epoch_begun": self._epoch_begun,
            **self._job.updates.epochs.snapshot(time.monotonic()),
            "evaluating": None
            if under_way is None
            else [under_way.round.version, *_to_list(under_way.occasion)],
            "waiting": None if self._waiting is None else _to_list(self._waiting),
        }

    async def start(self, snapshot: Mapping[str, Any] | None) -> None:
        """Let callbacks begin; with a cut's snapshot as they were then."""
        await self._callbacks.begin()
        if snapshot is None:
            await self._begin_epoch()
            return
        self._epoch_begun = snapshot.get("epoch_begun", self._job.ledger.epoch)
        self._callbacks.restore(snapshot)
        best, ending = self._callbacks.best, self._callbacks.ending
        if best is not None and not self._best.path(best.version).exists():
            self._callbacks.best = None
        if ending is not None:
            self._job.updates.end_training(ending)
        await self._resume(snapshot)
        # Only where a job that had trained all of its epochs is given more of them.
        await self._begin_epoch()

    async def _begin_epoch(self) -> None:
        ledger = self._job.ledger
        if not ledger.is_finished and ledger.epoch > self._epoch_begun:
            self._epoch_begun = ledger.epoch
            await self._callbacks.epoch_begins(ledger.epoch)

    async def _resume(self, snapshot: Mapping[str, Any]) -> None:
        """Go on with what was under evaluation when a cut was taken."""
        self._job.updates.epochs.restore(snapshot)
        store = self._job.parameters
        async with store.lock:
            waiting = snapshot.get("waiting")
            if waiting is not None and self._evaluates_epochs:
                self._wait(_from_list(waiting))
            evaluating = snapshot.get("evaluating")
            if evaluating is not None and self._shards:
                version, *occasion = evaluating
                await self._begin_again(version, _from_list(occasion))
            if self._open is None:
                await self._begin_waiting()

    async def _begin_again(self, version: int, occasion: Occasion) -> None:
        if version == self._job.parameters.version:
            await self._begin(occasion)
            return
        if not self._callbacks.is_active:
            # Nothing hangs on it, and it has not been kept.
            return
        cut = await self._best.read(version)
        if cut is None:
            self._on_lost(version)
        else:
            round_ = self._new_round(version)
            await self._job.parameters.keep_values(
                round_, version, cut.parameters, cut.state, cut.rows
            )
            self._enter(_Open(round_, occasion), None)

    # -- inside --------------------------------------------------------------------------------

    def _epoch(self) -> int:
        """The epoch that the newest version is of; at its end the ledger is at the next one."""
        ledger = self._job.ledger
        return ledger.epoch if ledger.records_done else max(ledger.epoch - 1, 0)

    def _new_round(self, version: int) -> EvaluationRound:
        round_ = EvaluationRound(self._num_rounds, version, self._shards, self._spec)
        # As rounds before have run, or else training.
        round_.ledger.shrunk_to = self._shrunk_to or self._job.ledger.shrunk_to
        self._num_rounds += 1
        self._last_version = version
        return round_

    async def _begin(self, occasion: Occasion) -> None:
        store = self._job.parameters
        round_ = self._new_round(store.version)
        await store.keep(round_)
        # Before the cut is taken, which tells what is under evaluation.
        self._open = _Open(round_, occasion)
        saving = None
        if self._callbacks.is_active:
            # What a restarted master evaluates again, and what the best version is made of.
            saving = asyncio.create_task(self._best.save(await self._cutter.capture()))
        self._enter(self._open, saving)

    def _enter(self, under_way: _Open, saving: asyncio.Task[None] | None) -> None:
        self._open, self._saving = under_way, saving
        self._job.tasks.open_round(under_way.round)
        self._closing = asyncio.create_task(self._close(under_way, saving))

    def _wait(self, occasion: Occasion) -> None:
        self._waiting = occasion
        self._job.tasks.hold_training()

    async def _begin_waiting(self) -> None:
        if self._waiting is not None:
            occasion, self._waiting = self._waiting, None
            await self._begin(occasion)
        self._job.tasks.hold_training(is_held=False)

    async def _close(self, under_way: _Open, saving: asyncio.Task[None] | None) -> None:
        try:
            await under_way.round.done.wait()
            if saving is not None:
                await saving
            await self._settle(under_way)
        except UserError as error:
            self._job.failure.fail(error)

    async def _settle(self, under_way: _Open) -> None:
        round_, occasion = under_way.round, under_way.occasion
        self._shrunk_to = round_.ledger.shrunk_to
        results = self._job.parameters.model.metric_results(round_.states())
        evaluation = Evaluation(round_.version, occasion.epoch, results)
        # On disk first: a cut must not name a best version that is not there.
        is_best = self._callbacks.would_be_best(evaluation) and await self._best.promote(
            round_.version
        )
        async with self._job.parameters.lock:
            self._job.tasks.close_round()
            self._open = None
            self._ended_s = time.monotonic()
            self.version, self.results = round_.version, results
            self._on_results(round_.version, round_.ledger.num_records, results)
            self._end(await self._callbacks.evaluated(evaluation, is_best, occasion.logs))
            self._job.parameters.release(round_)
            await self._begin_waiting()
        if is_best and await self._cutter.recovery_cut(is_wanted=True):
            await self._best.forget_before(round_.version)

    def _end(self, ending: Ending | None) -> None:
        if ending is not None:
            self._waiting = None
            self._job.updates.end_training(ending)


def _to_list(occasion: Occasion) -> list[Any]:
    return [occasion.epoch, None if occasion.logs is None else dict(occasion.logs)]


def _from_list(values: Sequence[Any]) -> Occasion:
    epoch, logs = values
    # Cuts of an earlier version have the loss alone.
    return Occasion(epoch, {"loss": logs} if isinstance(logs, float) else logs)
