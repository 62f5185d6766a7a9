"""`python -m elastic.master --job-dir DIR`: the master of one job on this machine."""

import argparse
import asyncio
import logging
import os
import sys
import traceback
from pathlib import Path

from elastic.errors import PlatformError
from elastic.master.environment import MasterEnvironment
from elastic.master.run import Master
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.replica import (
    own_replica_id,
    read_spec,
    read_token,
    share_cores,
    write_termination,
)
from elastic.platforms.local.runner import LocalReplicaRunner
from elastic.policy.replicas import ExitReason


def main() -> int:
    """Run the job to its end; 0 when it has one, whatever that is."""
    parser = argparse.ArgumentParser(prog="elastic.master")
    parser.add_argument("--job-dir", type=Path, required=True)
    job_dir: Path = parser.parse_args().job_dir
    try:
        environment = local_environment(job_dir)
        logging.basicConfig(
            level=environment.spec.log_level,
            format="%(asctime)s %(levelname).1s %(name)s: %(message)s",
        )
        # Next to the workers: an update that takes their cores too is ten times slower than one
        # that takes its own, since its threads wait for each other.
        share_cores(environment.spec.num_workers.maximum + 1)
        asyncio.run(_run(environment))
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        # The supervisor starts the next master; this one's last words must not get lost.
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        message = f"{type(error).__name__}: {error}"
        write_termination(job_dir, own_replica_id(), ExitReason.USER_ERROR, message, trace)
        return 1
    return 0


async def _run(environment: MasterEnvironment) -> None:
    await Master(environment).run()


def local_environment(job_dir: Path) -> MasterEnvironment:
    """What the local platform gives a master.

    Raises:
        PlatformError: The folder is not that of a job.
    """
    directory = JobDirectory(job_dir)
    submission = directory.submission()
    if submission is None:
        raise PlatformError(f"{job_dir} holds no submission.json: it is not the folder of a job")
    return MasterEnvironment(
        spec=read_spec(job_dir),
        token=read_token(job_dir),
        run_id=submission.uid,
        runner=LocalReplicaRunner(job_dir),
        recovery_dir=directory.cuts_path,
        host="127.0.0.1",
        room=os.cpu_count(),
    )


if __name__ == "__main__":
    sys.exit(main())
