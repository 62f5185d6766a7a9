"""`python -m elastic.worker --job-dir DIR|--kubernetes|… --index I --launch L`: one worker."""

import argparse
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from elastic.errors import PlatformError, RpcError, told
from elastic.platforms.registry import add_platform_flags, entry_of_program
from elastic.platforms.surroundings import Surroundings
from elastic.platforms.traces import start_logging
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.rpc.client import MasterClient, SupersededError
from elastic.spec.job import JobSpec
from elastic.spec.roles import WORKER
from elastic.worker.memory import keep_freed_memory

if TYPE_CHECKING:
    from elastic.worker.loop import Worker

LEAVING_PATIENCE_S: Final = 5.0
"""How long one that was asked to leave waits for a master that is away: perhaps the whole job was
asked, its master first."""


def main() -> int:
    """Work until the job is done; the reason of any other end goes into the termination record."""
    parser = argparse.ArgumentParser(prog="elastic.worker")
    add_platform_flags(parser)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--launch", type=int, required=True)
    arguments = parser.parse_args()
    # A crash in C raises nothing. Of it alone: a node keeps the last 2 KiB of what was written.
    faulthandler.enable(all_threads=False)
    replica = ReplicaId(WORKER, arguments.index, arguments.launch)
    platform, place = entry_of_program(arguments)
    surroundings = platform.surroundings(place, replica)
    try:
        spec = surroundings.spec()
        start_logging(spec.log_level)
        surroundings.prepare(spec.num_workers.maximum)
        has_left = _work(spec, surroundings, replica)
    except SupersededError as error:
        logging.getLogger(__name__).info("%s", error)
        with suppress(PlatformError):
            # Nobody waits for it: another has its place.
            surroundings.say_end(ExitReason.COMPLETED, "")
        return 0
    except RpcError as error:
        # Not the user's doing: the master was away too long, or refuses this worker.
        surroundings.say_end(ExitReason.KILLED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        surroundings.say_end(ExitReason.USER_ERROR, told(error), trace)
        return 1
    surroundings.say_end(ExitReason.COMPLETED, "")
    return surroundings.code_of_leaving(spec) if has_left else 0


def _work(spec: JobSpec, surroundings: Surroundings, replica: ReplicaId) -> bool:
    """Work until there is nothing left to do; whether it was asked to leave before."""
    client = MasterClient(surroundings.address, surroundings.token(), surroundings.patience_s())
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
    from elastic.worker.assembly import assemble
    from elastic.worker.meter import open_meter

    meter = open_meter(spec, replica.index)
    try:
        worker = loop.Worker(
            client, replica.index, replica.launch, assemble(spec, client, replica, meter), stopping
        )
        worker.run()
    finally:
        client.close()
    return stopping.is_set()


if __name__ == "__main__":
    sys.exit(main())
