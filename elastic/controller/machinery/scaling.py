"""Asks a scaler on all jobs together, again and again, and writes what it has decided.

Each look begins anew, from what there is by then: what could not be written, since somebody else
was faster or the API server away, is decided again.
"""

import logging
import threading
import time
from http import HTTPStatus
from typing import Final

from elastic.controller.machinery.informers import Informers
from elastic.controller.machinery.meter import Meter
from elastic.controller.machinery.recorder import EventRecorder
from elastic.controller.reconciling import Change, EventType, Note, Scaler
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.errors import BUSY, RefusedError

logger = logging.getLogger(__name__)

MOST_SHARE: Final = 0.2
"""Of one core, what looking may take however many jobs there are: the looks become fewer then."""

BUG_PAUSE_S: Final = 60.0


class Scaling:
    """A thread that looks and writes; safe to be stopped at any moment."""

    def __init__(
        self,
        cluster: Cluster,
        informers: Informers,
        recorder: EventRecorder,
        meter: Meter,
        scaler: Scaler,
        leaving: threading.Event,
    ) -> None:
        """Keep the parts.

        Args:
            cluster: Where the jobs are.
            informers: What there is of them.
            recorder: Tells what was done.
            meter: Counts it.
            scaler: Decides.
            leaving: Set when nothing may be written any more.
        """
        self._cluster = cluster
        self._informers = informers
        self._recorder = recorder
        self._meter = meter
        self._scaler = scaler
        self._leaving = leaving
        self._named: set[str] = set()
        self.thread = threading.Thread(target=self._run, name="scaling", daemon=True)

    def _run(self) -> None:
        pause_s = self._scaler.period_s
        while not self._leaving.wait(pause_s):
            began_s = time.monotonic()
            try:
                self._look()
            except PlatformError as error:
                logger.info("sizes are decided again in a while: %s", error)
            except Exception:
                # Whatever users write, the kinds look after their jobs as they are.
                logger.exception("sizes cannot be decided; tried again in %.0f s", BUG_PAUSE_S)
                pause_s = BUG_PAUSE_S
                continue
            took_s = time.monotonic() - began_s
            pause_s = max(self._scaler.period_s, took_s / MOST_SHARE)

    def _look(self) -> None:
        if not self._informers.is_synced:
            return
        overview = self._informers.overview(self._scaler.looks_at, self._cluster.now_s())
        if overview is None:
            return
        for change in self._scaler.plan(overview):
            if self._leaving.is_set() or not self._write(change):
                return

    def _write(self, change: Change) -> bool:
        """Write and tell one change; False where the others may rest on what has not come about."""
        if change.change is not None:
            try:
                self._patch(change)
            except RefusedError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return True
                if error.code == HTTPStatus.CONFLICT or error.code in BUSY:
                    return False
                self._tell_refusal(change, error)
                return True
        if change.note is not None:
            self._recorder.tell(change.told_of or change.target, change.component, change.note)
        return True

    def _patch(self, change: Change) -> None:
        assert change.change is not None, "there is something to be written"
        metadata = change.target["metadata"]
        # Of two who change at once one is refused: this was decided on the state that was seen.
        version = {"resourceVersion": metadata["resourceVersion"]}
        added = {**(change.change.get("metadata") or {}), **version}
        path = change.resource.path(metadata["namespace"], metadata["name"], change.part)
        stored = self._cluster.patch(path, {**change.change, "metadata": added})
        self._informers.written(change.resource, stored)
        self._meter.acted("status" if change.part else "patch")

    def _tell_refusal(self, change: Change, error: RefusedError) -> None:
        what = f"{change.resource.kind} {change.target['metadata']['name']}"
        if error.cause not in self._named:
            self._named.add(error.cause)
            logger.warning("the size of %s cannot be written: %s", what, error)
        note = Note(
            "FailedAutoscale", f"Writing its size failed: {error.detail}", EventType.WARNING
        )
        self._recorder.tell(change.told_of or change.target, change.component, note)
