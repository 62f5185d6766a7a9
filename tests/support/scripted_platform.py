"""A platform whose jobs follow a script, for the commands' own tests."""

import time
from collections import deque
from pathlib import Path

from elastic.errors import JobExistsError, JobNotFoundError, JobSpecError
from elastic.platforms.base import LogLine, unheard
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus

MAX_WORKERS = 8


def running_workers(count):
    return tuple(WorkerStatus(index=i, launch=1, phase="Running") for i in range(count))


class ScriptedPlatform:
    """Each look at a job's status takes the next of its script; the last one stays.

    A script may hold exceptions, which are raised instead. `on_submit` is the script of every
    job that is submitted. With `calls_path`, each kill is told in a file, for tests whose platform
    lives in another process.
    """

    def __init__(self, on_submit=(JobPhase.SUCCEEDED,), calls_path=None, **scripts):
        self.on_submit = on_submit
        self._calls_path = calls_path
        if calls_path is not None:
            Path(calls_path).touch()
        self.clock = None
        self.specs = {}
        self.calls = []
        self.log_lines = []
        self.losses = {}
        self._scripts = {name: deque(script) for name, script in scripts.items()}

    def __call__(self, name, choice):
        """Stand in for `open_platform`."""
        self.calls.append(("open", name))
        self.choice = choice
        return self

    def submit(self, spec):
        if spec.job_name in self._scripts:
            raise JobExistsError(f"job {spec.job_name} is there already")
        self.specs[spec.job_name] = spec
        self._scripts[spec.job_name] = deque(
            JobStatus(job_name=spec.job_name, phase=item) if isinstance(item, JobPhase) else item
            for item in self.on_submit
        )

    def now_s(self):
        return time.time() if self.clock is None else self.clock()

    def jobs(self):
        return list(self._scripts)

    def statuses(self):
        return [self.status(name) for name in self._scripts]

    def status(self, job_name):
        script = self._script(job_name)
        item = script[0] if len(script) == 1 else script.popleft()
        if isinstance(item, BaseException):
            raise item
        return item.model_copy(update={"job_name": job_name})

    def spec(self, job_name):
        return self.specs[job_name]

    def submitted_s(self, job_name):
        """That of the status that comes next, which stays the next."""
        return getattr(self._script(job_name)[0], "submitted_s", None)

    def scale(self, job_name, num_workers):
        self._script(job_name)
        if num_workers > MAX_WORKERS:
            raise JobSpecError(f"{num_workers} workers are outside the range 1:{MAX_WORKERS}")
        self.calls.append(("scale", job_name, num_workers))

    def kill(self, job_name, timeout_s, on_wait=unheard):
        script = self._script(job_name)
        on_wait("worker-0 to end")
        self.calls.append(("kill", job_name, timeout_s))
        if self._calls_path is not None:
            with Path(self._calls_path).open("a") as file:
                file.write(f"kill {job_name}\n")
        last = script[-1]
        if not last.phase.is_final:
            script.clear()
            script.append(last.model_copy(update={"phase": JobPhase.CANCELLED}))

    def would_lose(self, status):
        lost = self.losses.get(status.job_name, "")
        if isinstance(lost, BaseException):
            raise lost
        return lost

    def forget(self, job_name):
        self._script(job_name)
        self.calls.append(("forget", job_name))
        del self._scripts[job_name]

    def logs(self, job_name, replicas, follow, tail, previous=False, since=None):
        self._script(job_name)
        asked = [*(["previous"] * previous), *filter(None, [since])]
        self.calls.append(("logs", tuple(replicas), follow, tail, *asked))
        for replica, *line in self.log_lines:
            yield LogLine(replica, *line)

    def _script(self, job_name):
        if job_name not in self._scripts:
            raise JobNotFoundError(f"no job {job_name}: `elastic status` lists them")
        return self._scripts[job_name]
