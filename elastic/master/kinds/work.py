"""What a job has to do, whatever its kind, and what the master gives it for that."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from elastic.master.coordination.commit_log import CommitLog
from elastic.master.coordination.running import Listeners, RunningJob
from elastic.master.parameters.ring import ServerRing
from elastic.master.parameters.tables import Tables
from elastic.master.prepare.progress import Preparation
from elastic.master.report.status_board import StatusBoard
from elastic.master.report.telemetry import Telemetry
from elastic.platforms.surroundings import MasterEnvironment
from elastic.policy.replicas import ReplicaId
from elastic.spec.job import JobSpec

Until: TypeAlias = Callable[[asyncio.Event], Awaitable[None]]
"""Waits for an event, or raises what ends the job before."""


def _untold(_replica: ReplicaId) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class JobParts:
    """What there is of a job before its model is.

    Attributes:
        spec: The job's own, with what its first life has settled for good.
        is_first_life: No master of this submission has been there before.
        ring: The parameter servers; None where the master has the parameters.
        on_server_progress: Told of each server when it has made an update.
        is_back: The job was at work before in this life of the master: only a cut has its values.
        tables: Of embeddings, whose rows are kept beside the parameters; None where there are none.
    """

    env: MasterEnvironment
    spec: JobSpec
    board: StatusBoard
    telemetry: Telemetry
    commit_log: CommitLog
    preparation: Preparation
    is_first_life: bool
    listeners: Listeners
    ring: ServerRing | None = None
    on_server_progress: Callable[[ReplicaId], None] = _untold
    is_back: bool = False
    tables: Tables | None = None


class Work(Protocol):
    """Everything between a job's preparation and its end."""

    @property
    def job(self) -> RunningJob:
        """Its parts, which meet the workers."""

    @property
    def prediction_dir(self) -> Path | None:
        """Where workers put files of predictions; None where there are none."""

    async def run(self, until: Until) -> None:
        """Have every record worked through, and make the job's result.

        Raises:
            UserError: What ended the job before.
        """

    async def abandon(self) -> None:
        """Stop all that goes on beside the workers; the job begins anew with its newest cut."""

    async def leave(self) -> None:
        """Keep what would be lost with the master, which is to end; nothing counts after it."""
