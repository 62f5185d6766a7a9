"""The controller's door: whether it lives, whether it is ready, and its metrics, at one port.

Every metric that a controller exports is declared here, once.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from elastic.controller.machinery.meter import BOUNDS_S, Durations, Sample
from elastic.errors import JobSpecError
from elastic.telemetry.prometheus import Kind, Metric, usable_address

Probe: TypeAlias = Callable[[], str]
"""Says what is wrong; nothing where all is well."""

_Answer: TypeAlias = Callable[[str, str], tuple[HTTPStatus, str, bytes]]
"""From the path and the Accept header: status, type of the content, content."""

_TEXT: Final = "text/plain; charset=utf-8"
_SILENT_CLIENT_S: Final = 10.0
"""Who connects and asks nothing holds a thread for so long."""

logger = logging.getLogger(__name__)
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


def table() -> str:
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
