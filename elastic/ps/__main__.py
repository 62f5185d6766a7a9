"""`python -m elastic.ps --job-dir DIR|--kubernetes|… --index I --launch L`: a parameter server."""

import argparse
import asyncio
import faulthandler
import logging
import os
import secrets
import signal
import sys
import traceback
from contextlib import suppress

from elastic.errors import PlatformError, RpcError, told
from elastic.platforms.registry import add_platform_flags, entry_of_program
from elastic.platforms.surroundings import Surroundings
from elastic.platforms.traces import start_logging
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.rpc.client import MasterClient, SupersededError
from elastic.spec.job import JobSpec
from elastic.spec.roles import PS


def main() -> int:
    """Serve until the job has its end; the reason of any other end goes into its record."""
    parser = argparse.ArgumentParser(prog="elastic.ps")
    add_platform_flags(parser)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--launch", type=int, required=True)
    arguments = parser.parse_args()
    # A crash in C raises nothing. Of it alone: a node keeps the last 2 KiB of what was written.
    faulthandler.enable(all_threads=False)
    replica = ReplicaId(PS, arguments.index, arguments.launch)
    platform, place = entry_of_program(arguments)
    surroundings = platform.surroundings(place, replica)
    try:
        spec = surroundings.spec()
        start_logging(spec.log_level)
        surroundings.prepare(spec.num_ps)
        _end_when_asked(spec, surroundings)
        _serve(spec, surroundings, replica)
    except SupersededError as error:
        logging.getLogger(__name__).info("%s", error)
        with suppress(PlatformError):
            # Nobody waits for it: another has its place.
            surroundings.say_end(ExitReason.COMPLETED, "")
        return 0
    except RpcError as error:
        # Not the user's doing: the master was away too long, or refuses this server.
        surroundings.say_end(ExitReason.KILLED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        surroundings.say_end(ExitReason.USER_ERROR, told(error), trace)
        return 1
    surroundings.say_end(ExitReason.COMPLETED, "")
    return 0


def _end_when_asked(spec: JobSpec, surroundings: Surroundings) -> None:
    """Nothing here is worth a moment: what counts is in a cut."""

    def leave(*_: object) -> None:
        with suppress(PlatformError):
            surroundings.say_end(ExitReason.COMPLETED, "")
        os._exit(surroundings.code_of_leaving(spec))

    signal.signal(signal.SIGTERM, leave)


def _serve(spec: JobSpec, surroundings: Surroundings, replica: ReplicaId) -> None:
    client = MasterClient(surroundings.address, surroundings.token(), surroundings.patience_s())
    # Imported only now: frameworks read the thread variables when they are loaded.
    from elastic.ps.serving import Serving, share_builder

    serving = Serving(
        client,
        replica,
        secrets.token_hex(8),
        surroundings.token(),
        surroundings.own_host(),
        share_builder(spec),
    )
    try:
        asyncio.run(serving.run())
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main())
