"""What the user's code raised, and computing parts of a minibatch to find out why."""

import traceback
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from elastic.errors import ElasticError, RpcError, legible
from elastic.policy.records import Task
from elastic.rpc.client import Session, SessionLostError, SupersededError
from elastic.spec.user_frames import describe
from elastic.worker.batches import BatchStream
from elastic.worker.step import LeaseLostError, Trainer

CONTROL_FLOW: Final = (SessionLostError, SupersededError, LeaseLostError, RpcError)
"""What the master's answers raise, and no code of the user's."""
MAX_TRACEBACK: Final = 8000


@dataclass(frozen=True, slots=True)
class Failure:
    """What the user's code raised, as text.

    The exception itself holds on to the frames it came through, and so to the memory of a step.
    """

    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Tell an exception with the user's line; ours name that already."""
        is_ours = isinstance(error, ElasticError)
        message = str(error) if is_ours else legible(describe(error))
        trace = legible("".join(traceback.format_exception(error)))
        return cls(message, trace[-MAX_TRACEBACK:])


def try_part(
    task: Task, part: tuple[int, int], stream: BatchStream, trainer: Trainer, session: Session
) -> Failure | None:
    """Compute some records of a task by themselves, and keep nothing of it; None if they run."""
    try:
        with closing(stream.open(task.part(*part))) as batches:
            for loaded in batches:
                trainer.try_out(session, task, loaded)
    except CONTROL_FLOW:
        raise
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return Failure.of(error)
    return None
