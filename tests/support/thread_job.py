"""A whole job in this process: a real master, and real workers as threads, over real gRPC.

The framework is imported once and nothing has to start, so a job takes a fraction of a second.
What such a job cannot have is processes that die: for those there is `support.local_job`.
"""

import asyncio
import threading
import time
import uuid
from pathlib import Path

import numpy as np

from elastic.master.run import Master
from elastic.platforms.base import ExitReason
from elastic.platforms.registry import MasterEnvironment
from elastic.rpc.client import MasterClient
from elastic.spec.job import JobSpec
from elastic.worker.loop import Worker, assemble
from support.bounds import STILL_S, Stillness
from support.fake_platform import FakeReplicaRunner
from support.local_job import make_spec

ZOO = Path(__file__).parent / "zoo"
PATIENCE_S = 600.0
"""For what comes about by itself, however slowly."""
POLL_S = 0.01


class ThreadRunner(FakeReplicaRunner):
    """Runs each launched worker as a thread; deleted ones end after their minibatch."""

    def __init__(self, spec: JobSpec, token: str) -> None:
        super().__init__(autostart=False)
        self._spec = spec
        self._token = token
        self._stopping = {}
        self._threads = []
        self.job_has_ended = threading.Event()

    def launch(self, replica):
        if replica in self.launched:
            return
        super().launch(replica)
        self.run(replica)
        self._stopping[replica] = threading.Event()
        # One that hangs in spite of everything must not keep all tests from ending.
        thread = threading.Thread(
            target=self._work, args=(replica,), name=replica.name, daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def delete(self, replica, grace_s):
        self.deleted.append((replica, grace_s))
        self._stopping[replica].set()

    def join(self):
        """Wait until no worker is left."""
        self.job_has_ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} has not ended"

    def _work(self, replica):
        client = MasterClient(self._find_address, self._token, PATIENCE_S)
        try:
            build = assemble(self._spec, client, replica)
            Worker(client, replica.index, replica.launch, build, self._stopping[replica]).run()
        except _JobHasEndedError:
            self.end(replica, ExitReason.KILLED)
        except Exception as error:  # noqa: BLE001 - as the worker's own process does
            self.end(replica, ExitReason.USER_ERROR, f"{type(error).__name__}: {error}")
        else:
            self.end(replica, ExitReason.COMPLETED)
        finally:
            client.close()

    def _find_address(self):
        if self.job_has_ended.is_set():
            raise _JobHasEndedError
        return self.addresses[-1] if self.addresses else None


class _JobHasEndedError(Exception):
    """A master that ended before it served has nothing for its workers."""


class ThreadJob:
    """One submission; `recovery_dir` outlives it and is where the next one resumes."""

    def __init__(self, spec: JobSpec, recovery_dir: Path) -> None:
        self.spec = spec
        self.recovery_dir = recovery_dir
        self.runner = ThreadRunner(spec, "token")
        self.environment = MasterEnvironment(
            spec, "token", uuid.uuid4().hex, self.runner, recovery_dir, "127.0.0.1"
        )
        self._thread = threading.Thread(target=self._run_quietly, name="master", daemon=True)
        self._error = None

    def run(self):
        """Run to the end; returns the last status."""
        with self:
            return self.wait()

    def __enter__(self):
        """Run in the background."""
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.runner.ask(cancelled=True)
        self._thread.join(STILL_S)

    def wait_until(self, condition):
        """Poll a job in the background until `condition(statuses)`; it must not end before."""
        deadline, stillness = time.monotonic() + PATIENCE_S, Stillness()
        while not condition(self.runner.statuses):
            assert self._thread.is_alive(), f"the job ended before: {self.runner.statuses[-1:]}"
            assert time.monotonic() < deadline, f"not reached: {self.runner.statuses[-1:]}"
            stillness.look(self._last_status())
            time.sleep(POLL_S)

    def wait(self):
        """Wait for the end of a job in the background; returns the last status."""
        stillness = Stillness()
        while self._thread.is_alive():
            stillness.look(self._last_status())
            self._thread.join(POLL_S)
        if self._error is not None:
            raise self._error
        return self.runner.statuses[-1]

    def _last_status(self):
        return next(iter(self.runner.statuses[-1:]), None)

    async def _main(self):
        # Made inside the loop: it keeps hold of the loop it belongs to.
        await Master.open(self.environment).run()

    def _run_quietly(self):
        try:
            try:
                asyncio.run(self._main())
            finally:
                self.runner.join()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever waits
            self._error = error


def write_records(path, deeds=(), num_records=40, delay_ms=0.0):
    """Write `num_records` for the obedient model; `deeds` maps some of them to what they do."""
    deed = np.zeros(num_records, np.int64)
    for index, value in dict(deeds).items():
        deed[index] = value
    np.savez(path, index=np.arange(num_records), deed=deed, delay_ms=np.full(num_records, delay_ms))
    return path


def obedient_spec(data, num_records=40, **settings):
    """A job of the obedient model."""
    defaults = {
        "model_zoo": str(ZOO),
        "model_params": {"num_records": num_records},
        "records_per_task": 20,
        # Longer than any of these jobs: the checkpoints are those that a test asks for.
        "recovery_interval": 3600.0,
    }
    return make_spec(data=data, **{"model_def": "obedient.CustomModel", **defaults, **settings})


def held_spec(data, gate, num_records=40, mode="training", **settings):
    """A job of the obedient model whose workers take only the steps that `gate` allows them."""
    spec = obedient_spec(
        data,
        num_records,
        model_params={"num_records": num_records, "gate": str(gate.folder), "mode": mode},
        # To wait at the gate is no hang.
        **{"hang_timeout": 3600.0, **settings},
    )
    return spec.model_copy(update={"model_def": "held.CustomModel"})


def run_job(spec, tmp_path):
    """Run one job to its end; returns its last status."""
    return ThreadJob(spec, tmp_path / "cuts").run()


def events(status, kind):
    """The messages of a kind of event."""
    return [event.message for event in status.events if event.kind == kind]
