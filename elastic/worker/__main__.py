"""`python -m elastic.worker --job-dir DIR|--kubernetes|… --index I --launch L`: one worker."""

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

from elastic.platforms import first_process  # noqa: F401 - before what takes long
from elastic.platforms.process import keep_freed_memory
from elastic.platforms.registry import Surroundings, run_replica
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.rpc.client import MasterClient
from elastic.spec.job import JobSpec
from elastic.spec.roles import WORKER

if TYPE_CHECKING:
    from elastic.worker.loop import Worker

LEAVING_PATIENCE_S: Final = 5.0
"""How long one that was asked to leave waits for a master that is away: perhaps the whole job was
asked, its master first."""


def main() -> int:
    """Work until the job is done; the reason of any other end goes into the termination record."""
    return run_replica(WORKER, _work)


def _work(spec: JobSpec, surroundings: Surroundings, replica: ReplicaId) -> int:
    """Work until there is nothing left to do, or it is asked to leave before."""
    client = MasterClient(
        surroundings.address,
        surroundings.token(),
        surroundings.patience_s(),
        certificate=surroundings.certificate(),
    )
    stopping = threading.Event()
    worker: Worker | None = None

    def leave(*_: object) -> None:
        if worker is None or not worker.is_at_work:
            # Nothing is held and nothing is lost, and the import of a framework takes seconds. No
            # exception: the user's module, which may be what is imported, could catch it.
            surroundings.say_end(ExitReason.COMPLETED, "")
            os._exit(surroundings.code_of_leaving(spec))
        stopping.set()
        client.hurry(LEAVING_PATIENCE_S)

    signal.signal(signal.SIGTERM, leave)
    keep_freed_memory()
    # Imported only now: frameworks read the thread variables when they are loaded.
    from elastic.worker import loop
    from elastic.worker.loop import assemble
    from elastic.worker.strategy import open_meter

    meter = open_meter(spec, replica.index)
    try:
        worker = loop.Worker(
            client, replica.index, replica.launch, assemble(spec, client, replica, meter), stopping
        )
        worker.run()
    finally:
        client.close()
    return surroundings.code_of_leaving(spec) if stopping.is_set() else 0


if __name__ == "__main__":
    sys.exit(main())
