"""`python -m elastic.master --job-dir DIR | --kubernetes | …`: the master of one job."""

import argparse
import asyncio
import faulthandler
import logging
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial

from elastic.master.hang_watch import LEAST_S, HangWatch
from elastic.platforms.process import share_one_heap, start_logging
from elastic.platforms.registry import (
    MasterEnvironment,
    Surroundings,
    add_platform_flags,
    entry_of_program,
)
from elastic.policy.replicas import ExitReason

log = logging.getLogger(__name__)


def main() -> int:
    """Run the job to its end; 0 when it has one, whatever that is."""
    parser = argparse.ArgumentParser(prog="elastic.master")
    add_platform_flags(parser)
    platform, place = entry_of_program(parser.parse_args())
    # A crash in C raises nothing. Of it alone: a node keeps the last 2 KiB of what was written.
    faulthandler.enable(all_threads=False)
    # Before there are other threads.
    share_one_heap()
    surroundings = platform.surroundings(place, None)
    try:
        spec = surroundings.spec()
        start_logging(spec.log_level)
        # An update that takes the cores of workers that compute is ten times slower than one that
        # takes its own, since its threads wait for each other.
        surroundings.prepare(spec.workers_beside_update + 1)
        environment = platform.master_environment(place)
        if environment is not None:
            _run(environment, partial(_end_now, surroundings))
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        # The platform starts the next master; this one's last words must not get lost.
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        message = f"{type(error).__name__}: {error}"
        surroundings.say_end(ExitReason.USER_ERROR, message, trace)
        return 1
    return 0


def _run(environment: MasterEnvironment, on_hang: Callable[[str], None]) -> None:
    from elastic.master.run import Master

    async def run() -> None:
        spec = environment.spec
        watch = HangWatch(max(spec.hang_timeout, LEAST_S), spec.start_timeout, on_hang)
        watch.start()
        try:
            await Master.open(environment, watch.over).run()
        finally:
            watch.stop()

    asyncio.run(run())


def _end_now(surroundings: Surroundings, message: str) -> None:
    """End this process, whatever its other threads do; its platform starts the next master."""
    try:
        log.error("%s", message)
        faulthandler.dump_traceback()
        surroundings.say_end(ExitReason.USER_ERROR, message)
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
