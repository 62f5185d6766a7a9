"""The parts of a job whose model is there, as those who look at it or act on it get them."""

from collections.abc import Callable
from dataclasses import dataclass

from elastic.master.coordination.failures import JobFailure
from elastic.master.coordination.sessions import Sessions
from elastic.master.coordination.tasks import Tasks
from elastic.master.coordination.updates import CommitLog, Updates
from elastic.master.parameters.strategy import AnyStrategy
from elastic.policy.aggregation import UpdateRule
from elastic.policy.elastic_batch import BatchChoice
from elastic.policy.ledger import Ledger
from elastic.policy.liveness import Liveness
from elastic.policy.replicas import ReplicaId
from elastic.telemetry.meter import JobMeter


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of what happens.

    Attributes:
        on_event: Told an event, as its kind and its message.
        on_contribution: Told of each worker whose records count.
        meter: Adds up, for curves and metrics.
    """

    on_event: Callable[[str, str], None]
    on_contribution: Callable[[ReplicaId], None]
    meter: JobMeter


@dataclass(frozen=True, slots=True)
class RunningJob:
    """One job in this life of the master.

    Attributes:
        ledger: Of the training records; without any in a job that trains nothing.
        parameters: Where they live.
    """

    ledger: Ledger
    parameters: AnyStrategy
    sessions: Sessions
    tasks: Tasks
    updates: Updates
    failure: JobFailure

    @classmethod
    def assemble(
        cls,
        ledger: Ledger,
        parameters: AnyStrategy,
        rule: UpdateRule,
        liveness: Liveness,
        commit_log: CommitLog,
        listeners: Listeners,
        loss: float | None = None,
        batch: BatchChoice | None = None,
    ) -> "RunningJob":
        """Put the parts together, as ledger and parameters stand.

        Args:
            loss: As it was last, in the cut that they are from.
            batch: How many records make an update, where that is chosen.
        """
        failure = JobFailure()
        sessions = Sessions(liveness, listeners.on_contribution)
        updates = Updates(
            ledger,
            parameters,
            rule,
            sessions,
            commit_log,
            failure,
            listeners.on_event,
            listeners.meter,
            loss,
            batch,
        )
        tasks = Tasks(ledger, sessions, updates, failure, listeners.on_event)
        return cls(ledger, parameters, sessions, tasks, updates, failure)
