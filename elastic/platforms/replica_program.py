"""What the programs of workers and servers share: how one begins, and says its end."""

import argparse
import faulthandler
import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from elastic.errors import PlatformError, RpcError, SupersededError, told
from elastic.platforms.registry import add_platform_flags, entry_of_program
from elastic.platforms.surroundings import Surroundings
from elastic.platforms.traces import start_logging
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.spec.job import JobSpec
from elastic.spec.roles import ROLES

Work: TypeAlias = Callable[[JobSpec, Surroundings, ReplicaId], int]
"""What a replica does until the job needs it no more; gives its exit code."""


def run_replica(role: str, work: Work) -> int:
    """Begin as the flags say, work, and have the reason of any other end in the record.

    Args:
        role: Of the replica, as the table of roles has it.
        work: What it does.

    Returns:
        The exit code of the process.
    """
    parser = argparse.ArgumentParser(prog=f"elastic.{role}")
    add_platform_flags(parser)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--launch", type=int, required=True)
    arguments = parser.parse_args()
    # A crash in C raises nothing. Of it alone: a node keeps the last 2 KiB of what was written.
    faulthandler.enable(all_threads=False)
    replica = ReplicaId(role, arguments.index, arguments.launch)
    platform, place = entry_of_program(arguments)
    surroundings = platform.surroundings(place, replica)
    try:
        spec = surroundings.spec()
        start_logging(spec.log_level)
        surroundings.prepare(ROLES[role].limits(spec).maximum)
        code = work(spec, surroundings, replica)
    except SupersededError as error:
        logging.getLogger(__name__).info("%s", error)
        with suppress(PlatformError):
            # Nobody waits for it: another has its place.
            surroundings.say_end(ExitReason.COMPLETED, "")
        return 0
    except RpcError as error:
        # Not the user's doing: the master was away too long, or refuses this replica.
        surroundings.say_end(ExitReason.KILLED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        surroundings.say_end(ExitReason.USER_ERROR, told(error), trace)
        return 1
    surroundings.say_end(ExitReason.COMPLETED, "")
    return code
