"""One job of a kind, played pass after pass: the controller's part of a little world.

What there is, and what the cluster does with it, is a world's own: `support.elastic_world`,
`support.train_job_world`.
"""

from copy import deepcopy
from datetime import UTC, datetime

from elastic.controller.reconciling import Create, Observed

START_S = 1_750_000_000.0


class CrashError(Exception):
    """The controller died in the middle of a pass."""


def text_of(moment_s):
    return datetime.fromtimestamp(moment_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class PlayedKind:
    """Passes over a job; `_act` and `_write` are of whoever has the objects.

    Attributes:
        refuses: Which objects the API server does not take.
        looked_at: What it looks at and does not control, by type.
        crash_after: The number of actions after which the controller dies.
    """

    def __init__(self, kind, job, objects):
        self.kind = kind
        self.job = job
        self.objects = objects
        self.now_s = START_S
        self.notes = []
        self.actions = []
        self.num_status_writes = 0
        self.is_job_gone = False
        self.refuses = lambda create: False
        self.looked_at = {}
        self.crash_after = None
        self._num_made = 0
        self._due_s = None

    @property
    def name(self):
        return self.job["metadata"]["name"]

    @property
    def status(self):
        return self.job.get("status") or {}

    def reasons(self):
        return [note.reason for note in self.notes]

    @property
    def again_in_s(self):
        """Seconds until the kind wants to look again; None for never."""
        return None if self._due_s is None else self._due_s - self.now_s

    def observe(self):
        children = {
            of: [deepcopy(found[name]) for name in sorted(found)]
            for of, found in self.objects.items()
            if of in self.kind.children
        }
        random_hex = f"{self._num_made:064x}" * 2
        return Observed(
            deepcopy(self.job), children, self.now_s, None, random_hex, deepcopy(self.looked_at)
        )

    def one_pass(self):
        """One pass; True when it left something to be done at once."""
        outcome = self.kind.reconcile(self.observe())
        before = deepcopy(self.status)
        for number, action in enumerate(outcome.actions):
            if self.crash_after == number:
                raise CrashError
            if isinstance(action, Create) and self.refuses(action):
                return True
            self._act(action)
        if self.is_job_gone:
            return False
        if self.crash_after is not None and self.crash_after >= len(outcome.actions):
            raise CrashError
        if outcome.status != before:
            self._write(outcome.status)
        self.notes += outcome.notes
        wait_s = outcome.again_in_s
        self._due_s = None if wait_s is None else self.now_s + wait_s
        self._is_to_look_now = wait_s == 0
        return bool(outcome.actions) or outcome.status != before

    def settle(self, passes=60):
        """Pass after pass until nothing changes; then once more, which must write nothing."""
        for _ in range(passes):
            if self.is_job_gone or not self.one_pass():
                break
        else:
            raise AssertionError(f"no fixed point: {self.actions[-6:]}")
        if not self.is_job_gone:
            assert not self._is_to_look_now, "it is to be called again at once, and does nothing"
        return self
