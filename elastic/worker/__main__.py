"""`python -m elastic.worker --job-dir DIR --index I --launch L`: one worker on this machine."""

import argparse
import logging
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Final

from elastic.errors import ElasticError, RpcError
from elastic.platforms.local.replica import (
    read_address,
    read_spec,
    read_token,
    share_cores,
    write_termination,
)
from elastic.policy.fleet import WORKER
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.rpc.client import MasterClient, SupersededError
from elastic.spec.job import JobSpec

PATIENCE_S: Final = 600.0
"""How long a worker waits for a master that is away, before it gives its place up."""


def main() -> int:
    """Work until the job is done; the reason of any other end goes into the termination record."""
    parser = argparse.ArgumentParser(prog="elastic.worker")
    parser.add_argument("--job-dir", type=Path, required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--launch", type=int, required=True)
    arguments = parser.parse_args()
    job_dir: Path = arguments.job_dir
    replica = ReplicaId(WORKER, arguments.index, arguments.launch)
    try:
        spec = read_spec(job_dir)
        logging.basicConfig(
            level=spec.log_level, format="%(asctime)s %(levelname).1s %(name)s: %(message)s"
        )
        share_cores(spec.num_workers.maximum)
        _work(spec, job_dir, replica)
    except SupersededError as error:
        logging.getLogger(__name__).info("%s", error)
        return 0
    except RpcError as error:
        # Not the user's doing: the master was away too long, or refuses this worker.
        write_termination(job_dir, replica, ExitReason.KILLED, str(error))
        return 1
    except Exception as error:  # noqa: BLE001 - the one broad catch of this process
        trace = traceback.format_exc()
        sys.stderr.write(trace)
        message = (
            str(error) if isinstance(error, ElasticError) else f"{type(error).__name__}: {error}"
        )
        write_termination(job_dir, replica, ExitReason.USER_ERROR, message, trace)
        return 1
    write_termination(job_dir, replica, ExitReason.COMPLETED, "")
    return 0


def _work(spec: JobSpec, job_dir: Path, replica: ReplicaId) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    # Imported only now: frameworks read the thread variables when they are loaded.
    from elastic.worker.assembly import assemble
    from elastic.worker.loop import Worker

    client = MasterClient(lambda: read_address(job_dir), read_token(job_dir), PATIENCE_S)
    try:
        Worker(client, replica.index, replica.launch, assemble(spec, client), stopping).run()
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main())
