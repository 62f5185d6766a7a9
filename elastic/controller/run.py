"""The process of `elastic controller`: it connects, is elected, acts, and ends."""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import FrameType
from typing import Final

from elastic.controller.machinery.election import (
    DURATION_S,
    TIMEOUT_S,
    Election,
    LeadersPace,
    LeaseLostError,
)
from elastic.controller.machinery.meter import Sample
from elastic.controller.machinery.registration import register
from elastic.controller.machinery.serving import ControllerExporter, Door
from elastic.controller.parts import Engine, Parts
from elastic.controller.settings import Settings
from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.cluster import Cluster, RefusedError, is_served, may
from elastic.platforms.kubernetes.api.kubeconfig import Access, find_access, is_configured
from elastic.platforms.kubernetes.api.leases import Lease
from elastic.platforms.kubernetes.api.resources import Resource
from elastic.platforms.kubernetes.objects.queues import GROUPS

SILENT_S: Final = 60.0
"""An election that turns no more for so long hangs, and the process with it."""

EVENTS_SHARE: Final = 0.2
"""Of the requests a second, those that tell of what was done, in addition to those that do it."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Ending:
    """Whether this process is to end, and by which signal it was asked to."""

    event: threading.Event = field(default_factory=threading.Event)
    signal_number: int | None = None


@contextmanager
def asked_to_end() -> Iterator[Ending]:
    """Take the first signal that ends a process as a wish, and the second as an order.

    What ignores it, as under `nohup`, goes on ignoring it.
    """
    ending = Ending()
    before = {number: signal.getsignal(number) for number in _ENDING}

    def ask(number: int, _frame: FrameType | None) -> None:
        if ending.signal_number is not None:
            raise KeyboardInterrupt
        ending.signal_number = number
        # Who waits for the event in this very thread may hold its lock.
        threading.Thread(target=ending.event.set, daemon=True).start()

    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, ask)
    try:
        yield ending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_until_asked(settings: Settings, parts: Parts) -> int | None:
    """Run a controller as this process, until a signal ends it.

    Where the lease is lost, this function does not return: the process ends at once, with 1.

    Returns:
        The number of the signal.

    Raises:
        JobSpecError: See `run`.
        PlatformError: See `run`.
    """
    with asked_to_end() as ending:
        try:
            run(settings, parts, ending.event)
        except LeaseLostError as error:
            sys.stderr.write(f"error: {error}\n")
            sys.stderr.flush()
            os._exit(1)
    return ending.signal_number


def run(settings: Settings, parts: Parts, stopping: threading.Event) -> None:
    """Reconcile until `stopping` is set; stand by as long as another one does.

    Raises:
        JobSpecError: A setting has no usable meaning.
        PlatformError: The cluster cannot be used.
        LeaseLostError: Another process may act from now on; this one sends nothing any more, and
            has threads that still wait for answers: it is to end at once.
    """
    names = parts.chosen(settings.kinds)
    access = _access(settings)
    process = _Process(settings, parts, names, access)
    process.open()
    try:
        process.serve(stopping)
    finally:
        process.close()


class _Process:
    """The parts of one controller, and the order of its life."""

    def __init__(
        self, settings: Settings, parts: Parts, names: tuple[str, ...], access: Access
    ) -> None:
        self._settings = settings
        self._names = names
        self._parts = parts
        self._scaler = parts.make_scaler(names)
        self._namespace = settings.namespace or access.namespace
        self._identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._election = _election(settings, access, self._namespace, self._identity)
        rate = settings.requests_per_second
        self._cluster = Cluster(access, self._pace(rate))
        self._events_cluster = Cluster(access, self._pace(rate * EVENTS_SHARE))
        self._engine: Engine | None = None
        told = [kind.resource.kind for kind in parts.kinds(names).values()]
        exporter = ControllerExporter(self._sample, lambda: self._election.is_leading, told)
        self._door = Door(exporter.registry, self._why_dead, self._why_unready)

    def open(self) -> None:
        """Answer probes.

        Raises:
            JobSpecError: Not at this port.
        """
        if self._settings.port:
            self._door.open(self._settings.port)

    def serve(self, stopping: threading.Event) -> None:
        """Be elected, and act until `stopping` is set."""
        where = "all namespaces" if self._settings.all_namespaces else self._namespace
        logger.info("looks after %s in %s", ", ".join(self._names), where)
        try:
            if not self._election.win(stopping):
                return
        except RefusedError as error:
            raise self._explained(error) from error
        try:
            self._act(stopping)
        except LeaseLostError as error:
            # Nobody may be kept waiting by what this process still waits for.
            raise LeaseLostError(self._election.why_lost()) from error
        except BaseException:
            self._leave()
            raise
        self._leave()
        logger.info("ended as asked")

    def close(self) -> None:
        """Answer no more."""
        self._door.close()

    # -- inside --------------------------------------------------------------------------------

    def _act(self, stopping: threading.Event) -> None:
        resources = [kind.resource for kind in self._parts.kinds(self._names).values()]
        register(self._cluster, resources, self._parts.definitions(), self._remedy(), stopping)
        kinds = list(self._parts.kinds(self._names, self._is_served).values())
        scope = None if self._settings.all_namespaces else self._namespace
        self._engine = self._parts.make_engine(
            self._cluster,
            kinds,
            scope,
            self._settings.num_workers,
            events_cluster=self._events_cluster,
            instance=self._identity,
            scaler=self._scaler,
        )
        self._engine.start()
        self._election.keep(stopping)

    def _is_served(self, resource: Resource) -> bool:
        if not is_served(self._cluster, resource):
            return False
        if resource not in GROUPS.values():
            return True
        # Seen by those kinds alone whose jobs wait in queues, and rights for it are given apart:
        # without them jobs that ask for no queue must not wait for any.
        scope = None if self._settings.all_namespaces else self._namespace
        return may(self._cluster, "list", resource, scope)

    def _leave(self) -> None:
        """Have another one act; the lease is kept until the last pass has ended."""
        if self._engine is not None:
            self._engine.stop()
        self._election.resign()

    def _pace(self, rate: float) -> LeadersPace:
        return LeadersPace(lambda: self._election.is_leading, rate, max(1, int(2 * rate)))

    def _sample(self) -> Sample:
        return Sample() if self._engine is None else self._engine.sample()

    def _why_dead(self) -> str:
        silent_s = self._election.silent_s
        return f"the election has not turned for {silent_s:.0f} s" if silent_s > SILENT_S else ""

    def _why_unready(self) -> str:
        if not self._election.is_in_contact:
            return "the API server does not answer"
        if self._election.is_leading and (self._engine is None or not self._engine.is_synced):
            return "leads, and has not listed everything yet"
        return ""

    def _remedy(self) -> str:
        everywhere = " --all_namespaces" if self._settings.all_namespaces else ""
        kinds = f" --kinds {','.join(self._names)}" if self._settings.kinds else ""
        sizes = "".join(f" {each}" for each in self._settings.autoscaling.arguments())
        return f"elastic install --controller -n {self._namespace}{everywhere}{kinds}{sizes}"

    def _explained(self, error: RefusedError) -> PlatformError:
        if error.code == HTTPStatus.NOT_FOUND:
            return PlatformError(
                f"there is no namespace {self._namespace!r} for the lease "
                f"{self._settings.lease_name}: choose another --namespace"
            )
        if error.is_denied:
            return PlatformError(f"{error}. `{self._remedy()}` gives its account all rights")
        return error


def _access(settings: Settings) -> Access:
    is_named = settings.kubeconfig is not None or settings.context is not None
    if not is_named and not is_configured():
        raise PlatformError(
            "no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, no "
            "service account): name a --kubeconfig"
        )
    return find_access(settings.kubeconfig, settings.context)


def _election(settings: Settings, access: Access, namespace: str, identity: str) -> Election:
    # Connections of its own: what the engine asks for must not hold up a renewal.
    cluster = Cluster(access, patience_s=0.0, read_timeout_s=TIMEOUT_S)
    lease = Lease(cluster, namespace, settings.lease_name, identity, DURATION_S)
    return Election(lease, f"{namespace}/{settings.lease_name}")
