"""An HTTP server of this process in the place of an API server, which answers as a test says."""

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kubernetes.client.configuration import Configuration

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.transport import Access

OK = 200


@dataclass
class Answer:
    """One answer: `silent` never comes, `cut` ends the connection without one."""

    code: int = OK
    body: object = field(default_factory=dict)
    headers: dict = field(default_factory=dict)
    silent: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    body: object
    headers: dict
    time_s: float


def refusal(code, message="no", reason="", kind="", **headers):
    """As an API server says no; `kind` is what it speaks of, such as pods."""
    body = {"kind": "Status", "message": message, "reason": reason, "code": code}
    body["details"] = {"kind": kind}
    return Answer(code, body, {name.replace("_", "-"): text for name, text in headers.items()})


class FakeApi:
    """Gives the answers of a script, one a request; the last one stays.

    `answer(seen)` may be given instead, and makes an `Answer` of each request.
    """

    def __init__(self, *script, answer=None):
        self.requests = []
        self._script = list(script) or [Answer()]
        self._answer = answer or self._next
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def cluster(self, patience_s=10.0, pace=None, **options):
        """A client of this server."""
        configuration = Configuration()
        configuration.host = self.url
        return Cluster(Access(configuration, "team", "a test"), pace, patience_s, **options)

    def said(self):
        """Method and path of every request so far."""
        return [f"{seen.method} {seen.path}" for seen in self.requests]

    def _next(self, _):
        with self._lock:
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    def _handler(self):
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                length = int(self.headers.get("Content-Length", 0))
                raw = self.rfile.read(length)
                body = json.loads(raw) if raw else None
                seen = Seen(self.command, self.path, body, dict(self.headers), time.monotonic())
                api.requests.append(seen)
                answer = api._answer(seen)
                if answer.silent:
                    api._released.wait()
                if answer.silent or answer.cut:
                    self.close_connection = True
                    return
                self._send(answer)

            def _send(self, answer):
                is_raw = isinstance(answer.body, bytes)
                content = answer.body if is_raw else json.dumps(answer.body).encode()
                self.send_response(answer.code)
                for name, text in answer.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(content)))
                with suppress(OSError):
                    self.end_headers()
                    self.wfile.write(content)

            def date_time_string(self, timestamp=None):
                return api.date or super().date_time_string(timestamp)

            def log_message(self, *_):
                pass

        for method in ("GET", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_any)
        return Handler

    date = None
    """The Date of every answer, where it is not ours."""
