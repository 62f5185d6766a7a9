"""`python -m elastic.ps --job-dir DIR|--kubernetes|… --index I --launch L`: a parameter server."""

import asyncio
import os
import secrets
import signal
import sys
from contextlib import suppress

from elastic.errors import PlatformError
from elastic.platforms import first_process  # noqa: F401 - before what takes long
from elastic.platforms.registry import Surroundings, run_replica
from elastic.policy.replicas import ExitReason, ReplicaId
from elastic.rpc.client import MasterClient
from elastic.spec.job import JobSpec
from elastic.spec.roles import PS


def main() -> int:
    """Serve until the job has its end; the reason of any other end goes into its record."""
    return run_replica(PS, _serve)


def _end_when_asked(spec: JobSpec, surroundings: Surroundings) -> None:
    """Nothing here is worth a moment: what counts is in a cut."""

    def leave(*_: object) -> None:
        with suppress(PlatformError):
            surroundings.say_end(ExitReason.COMPLETED, "")
        os._exit(surroundings.code_of_leaving(spec))

    signal.signal(signal.SIGTERM, leave)


def _serve(spec: JobSpec, surroundings: Surroundings, replica: ReplicaId) -> int:
    _end_when_asked(spec, surroundings)
    token, certificate = surroundings.token(), surroundings.certificate()
    client = MasterClient(
        surroundings.address, token, surroundings.patience_s(), certificate=certificate
    )
    # Imported only now: frameworks read the thread variables when they are loaded.
    from elastic.ps.servicer import Serving, share_builder

    serving = Serving(
        client,
        replica,
        secrets.token_hex(8),
        token,
        surroundings.own_host(),
        share_builder(spec),
        certificate,
    )
    try:
        asyncio.run(serving.run())
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
