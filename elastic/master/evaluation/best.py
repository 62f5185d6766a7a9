"""Versions kept for their evaluation, and the best of them, as cuts on disk."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

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
from elastic.errors import CheckpointError
from elastic.frameworks.base import Model
from elastic.master.fenced import FencedWriter
from elastic.platforms.base import NO_FENCE, Fence

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
        model.load(cut.parameters, cut.state)

    def path(self, version: int) -> Path:
        """Where the best version is."""
        return cut_path(self._best_dir, version)

    def _tell(self, version: int, folder: Path, error: OSError) -> None:
        self._on_event(
            "CheckpointFailed",
            f"version {version} could not be kept in {folder} for its evaluation: "
            f"{in_words(error)}: {advice(error)}",
        )
