"""The process of `elastic controller`: it connects, is elected, acts, tells how it is, and ends.

Of several controllers the holder of a lease acts, and nobody else at any moment. One that cannot
renew its lease stops a while before another can have it: from then on no request of its leaves
(`LeadersPace`), and its process ends.
"""

import logging
import os
import random
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from types import FrameType
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from elastic.controller.assembly import AnyEngine, Parts
from elastic.controller.machinery.meter import BOUNDS_S, Durations, Sample
from elastic.controller.machinery.registration import register
from elastic.controller.settings import Settings
from elastic.errors import JobSpecError, PlatformError
from elastic.platforms.kubernetes.api.cluster import (
    AwayError,
    Cluster,
    Lease,
    RefusedError,
    is_served,
    may,
)
from elastic.platforms.kubernetes.api.resources import Resource
from elastic.platforms.kubernetes.api.transport import (
    BURST,
    RATE,
    Access,
    Pace,
    find_access,
    is_configured,
    is_permanent,
)
from elastic.platforms.kubernetes.objects.names import GROUPS
from elastic.telemetry.prometheus import Kind, Metric, usable_address

DURATION_S: Final = 9
"""Of the lease. Who waits for it has seen the last renewal up to `RETRY_S` late, and looks again up
to `RETRY_S` late: a standby leads 11 s after its leader was killed, and has 4 s to list."""

RENEW_S: Final = 2.0
RETRY_S: Final = 1.0
"""Between two tries of who waits, and of who could not renew."""

MARGIN_S: Final = 2.0
"""A leader stops so long before the lease ends: for what it has sent and has not arrived."""

TIMEOUT_S: Final = 3.0
"""For an answer about the lease; a connection that died in silence costs one renewal."""

logger = logging.getLogger(__name__)


class LeaseLostError(PlatformError):
    """Another process may act from now on, so this one may not."""


class LeadersPace(Pace):
    """Lets requests out at a bounded pace, and none once their sender leads no more."""

    def __init__(
        self, is_leading: Callable[[], bool], rate: float = RATE, burst: int = BURST
    ) -> None:
        """Keep the parts.

        Args:
            is_leading: Asked for each request, just before it goes out.
            rate: Requests a second.
            burst: Requests at once.
        """
        super().__init__(rate, burst)
        self._is_leading = is_leading

    def wait(self) -> None:
        """Return when the next request may go out.

        Raises:
            LeaseLostError: It may never.
        """
        super().wait()
        if not self._is_leading():
            raise LeaseLostError("this process leads no more: nothing is sent")


class Election:
    """One candidate: waits for the lease, keeps it, lets it go."""

    def __init__(
        self,
        lease: Lease,
        name: str,
        duration_s: float = DURATION_S,
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        margin_s: float = MARGIN_S,
    ) -> None:
        """Keep the parts; nothing is sent before `win`.

        Args:
            lease: Not used by anybody else.
            name: Of the lease, for messages.
            duration_s: Of the lease.
            renew_s: See `RENEW_S`; several times within `duration_s`.
            retry_s: See `RETRY_S`.
            margin_s: See `MARGIN_S`.
        """
        self._lease = lease
        self._name = name
        self._leads_for_s = duration_s - margin_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._until_s = 0.0
        self._last_try_s = time.monotonic()
        self._failure: PlatformError | None = None
        self._is_taken = False
        # A lease is no matter of two threads, and who resigns is another one than who renews.
        self._trying = threading.Lock()
        self._resigned = threading.Event()

    @property
    def is_leading(self) -> bool:
        """Whether this process may act; never while another may."""
        return time.monotonic() < self._until_s

    @property
    def is_in_contact(self) -> bool:
        """Whether the API server has answered the last try."""
        return self._failure is None

    @property
    def silent_s(self) -> float:
        """Seconds since a try has ended, in whatever way: many of them mean that all hangs."""
        return time.monotonic() - self._last_try_s

    def win(self, stopping: threading.Event) -> bool:
        """Wait until this process leads, and have the lease renewed from then on.

        Args:
            stopping: Ends the waiting.

        Returns:
            Whether it leads: False where `stopping` came first.

        Raises:
            RefusedError: The API server does not let this user have the lease.
        """
        is_told = False
        while not stopping.is_set():
            if self._try():
                logger.info("leads: holds the lease %s", self._name)
                threading.Thread(target=self._renew, name="renew lease", daemon=True).start()
                return True
            if isinstance(self._failure, RefusedError) and is_permanent(self._failure):
                raise self._failure
            if not is_told and self._failure is None:
                logger.info("stands by: another process holds the lease %s", self._name)
                is_told = True
            stopping.wait(self._pause_s())
        return False

    def keep(self, stopping: threading.Event, poll_s: float = 0.5) -> None:
        """Return when `stopping` is set; the lease is renewed meanwhile, and afterwards.

        Raises:
            LeaseLostError: This process leads no more, and nobody else does yet.
        """
        while not stopping.is_set():
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise LeaseLostError(self.why_lost())
            # Whoever else takes the lease away ends it at once, which nobody tells this thread.
            stopping.wait(min(left_s, poll_s))

    def why_lost(self) -> str:
        """What a process that led and leads no more tells at its end."""
        return (
            f"the lease {self._name} is no longer held: {self._cause()}. This process ends, lest "
            "two act at once; its Deployment starts it again"
        )

    def resign(self) -> None:
        """Stop renewing, and let the next one lead at once where the API server hears of it."""
        self._resigned.set()
        with self._trying:
            self._until_s = 0.0
            try:
                self._lease.release()
            except PlatformError as error:
                logger.warning("the lease %s ends by itself: %s", self._name, error)

    def _renew(self) -> None:
        pause_s = self._renew_s
        while not self._resigned.wait(pause_s):
            is_renewed = self._try()
            if not is_renewed and self._failure is None:
                return
            pause_s = self._renew_s if is_renewed else self._pause_s()

    def _try(self) -> bool:
        """One try to take or to renew; whether it succeeded."""
        with self._trying:
            if self._resigned.is_set():
                return False
            began_s = time.monotonic()
            failure: PlatformError | None = None
            is_ours = False
            try:
                is_ours = self._lease.try_hold()
                # Where nobody says no, what was held before is held until it ends.
                self._until_s = began_s + self._leads_for_s if is_ours else 0.0
            except (AwayError, RefusedError) as error:
                failure = error
            if failure is not None and self._failure is None:
                logger.warning("the lease %s cannot be asked for: %s", self._name, failure)
            self._failure = failure
            self._is_taken = failure is None and not is_ours
            self._last_try_s = time.monotonic()
            return is_ours

    def _cause(self) -> str:
        if self._failure is not None:
            return str(self._failure)
        if self._is_taken:
            return "another process has taken it"
        return (
            f"no renewal was done within {self._leads_for_s:g} s, as on a node without CPU to spare"
        )

    def _pause_s(self) -> float:
        return self._retry_s * random.uniform(0.8, 1.0)  # noqa: S311 - no secret


# The controller's door: whether it lives, whether it is ready, and its metrics, at one port.
#
# Every metric that a controller exports is declared here, once.


Probe: TypeAlias = Callable[[], str]
"""Says what is wrong; nothing where all is well."""

_Answer: TypeAlias = Callable[[str, str], tuple[HTTPStatus, str, bytes]]
"""From the path and the Accept header: status, type of the content, content."""

_TEXT: Final = "text/plain; charset=utf-8"
_SILENT_CLIENT_S: Final = 10.0
"""Who connects and asks nothing holds a thread for so long."""
PASSES: Final = Metric(
    "elastic_controller_passes_total", Kind.COUNTER, "Looks at one job, by its kind.", "kind"
)
ACTIONS: Final = Metric(
    "elastic_controller_actions_total",
    Kind.COUNTER,
    "What was done in the cluster: `create`, `patch`, `delete`, `status`.",
    "action",
)
ERRORS: Final = Metric(
    "elastic_controller_errors_total",
    Kind.COUNTER,
    "Passes that failed, and are tried again, by the kind of job.",
    "kind",
)
QUEUE: Final = Metric(
    "elastic_controller_queue_depth", Kind.GAUGE, "Jobs that wait to be looked at."
)
LATENCY: Final = Metric(
    "elastic_controller_event_to_action_seconds",
    Kind.HISTOGRAM,
    "Time from a change that was heard of to the end of the pass that took it into account.",
)
LEADER: Final = Metric(
    "elastic_controller_leader", Kind.GAUGE, "1 where this process acts, 0 where it stands by."
)
MISSING: Final = Metric(
    "elastic_controller_missing_types",
    Kind.GAUGE,
    "1 for each type that is to be watched and cannot be: not installed, or not permitted.",
    "resource",
)

METRICS: Final = (PASSES, ACTIONS, ERRORS, QUEUE, LATENCY, LEADER, MISSING)
"""What a controller exports."""

_ACTIONS: Final = ("create", "patch", "delete", "status")


class Door:
    """An HTTP server on threads of its own."""

    def __init__(
        self, registry: CollectorRegistry, is_alive: Probe, is_ready: Probe, host: str = "::"
    ) -> None:
        """Keep the parts; `open` begins to listen.

        Args:
            registry: What `/metrics` tells.
            is_alive: Behind `/healthz`: a process that fails it is to be started again.
            is_ready: Behind `/readyz`.
            host: Address to listen at; `::` for all there are.
        """
        self._registry = registry
        self._probes = {"/healthz": is_alive, "/readyz": is_ready}
        self._host = host
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None

    def open(self, port: int) -> None:
        """Answer from now on.

        Raises:
            JobSpecError: The port is in use, or may not be listened at.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        host = usable_address(self._host)

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                # A kubelet hangs up on an answer that comes late: nobody needs its traceback.
                if not isinstance(sys.exception(), ConnectionError):
                    super().handle_error(request, client_address)

        try:
            self._server = Server((host, port), _handler(self._answer))
        except OSError as error:
            raise JobSpecError(
                f"--port={port} cannot be listened at: {error.strerror or error}: "
                "choose another, or 0 for none"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="health and metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Answer no more; without effect on a door that is not open."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def _answer(self, path: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return HTTPStatus.OK, content_type, encode(self._registry)
        probe = self._probes.get(path)
        if probe is None:
            known = ", ".join((*self._probes, "/metrics"))
            return HTTPStatus.NOT_FOUND, _TEXT, f"there is {known}\n".encode()
        wrong = probe()
        status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
        return status, _TEXT, f"{wrong or 'ok'}\n".encode()


def _handler(answer: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _SILENT_CLIENT_S

        def do_GET(self) -> None:
            status, kind, content = answer(urlsplit(self.path).path, self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_HEAD = do_GET  # noqa: N815 - as the library calls it

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the library calls it
            # Of no interest to whoever reads the log of a controller.
            logger.debug(format, *args)

    return Handler


def metrics_table() -> str:
    """The metrics as Markdown, for the docs."""
    lines = ["| metric | type | label | what it says |", "| --- | --- | --- | --- |"]
    for metric in METRICS:
        label = f"`{metric.label}`" if metric.label else ""
        lines.append(f"| `{metric.name}` | {metric.kind} | {label} | {metric.help} |")
    return "\n".join(lines) + "\n"


class ControllerExporter(Collector):
    """Tells Prometheus of one controller."""

    def __init__(
        self, sample: Callable[[], Sample], is_leading: Callable[[], bool], kinds: Sequence[str]
    ) -> None:
        """Keep the parts.

        Args:
            sample: Asked for each scrape.
            is_leading: Likewise.
            kinds: Told from 0 on, or nobody could tell how fast they grow at first.
        """
        self.registry = CollectorRegistry()
        self._sample = sample
        self._is_leading = is_leading
        self._kinds = kinds
        self.registry.register(self)

    def collect(self) -> Iterator[Family]:
        """All metrics."""
        sample, zeros = self._sample(), dict.fromkeys(self._kinds, 0)
        yield _family(PASSES, {**zeros, **sample.passes})
        yield _family(ACTIONS, {**dict.fromkeys(_ACTIONS, 0), **sample.actions})
        yield _family(ERRORS, {**zeros, **sample.errors})
        yield _family(QUEUE, sample.queue_depth)
        yield _histogram(LATENCY, sample.latency)
        yield _family(LEADER, int(self._is_leading()))
        yield _family(MISSING, dict.fromkeys(sample.missing, 1))

    def describe(self) -> list[Family]:
        """Nothing: registering must not count for being scraped."""
        return []


def _family(metric: Metric, value: float | Mapping[str, float]) -> Family:
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = make(metric.name, metric.help, labels=[metric.label] if metric.label else [])
    if isinstance(value, Mapping):
        for name, amount in value.items():
            family.add_metric([name], amount)
    else:
        family.add_metric([], value)
    return family


def _histogram(metric: Metric, durations: Durations) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help)
    bounds = [*map(str, BOUNDS_S), "+Inf"]
    family.add_metric(
        [], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.sum_s
    )
    return family


# The process of `elastic controller`: it connects, is elected, acts, and ends.


SILENT_S: Final = 60.0
"""An election that turns no more for so long hangs, and the process with it."""

EVENTS_SHARE: Final = 0.2
"""Of the requests a second, those that tell of what was done, in addition to those that do it."""

_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


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
        self._engine: AnyEngine | None = None
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
