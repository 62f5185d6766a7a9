"""Single requests to one API server: bytes out, JSON or lines in, nothing tried twice.

The client library takes care of certificates and credentials, and its models are left alone, since
decoding into them costs ten times what JSON does.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from elastic.platforms.kubernetes.api.errors import AwayError, is_of_api_server, refusal
from elastic.platforms.kubernetes.api.kubeconfig import Access
from elastic.platforms.kubernetes.api.resources import Manifest

if TYPE_CHECKING:
    from kubernetes.client.rest import RESTClientObject, RESTResponse

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 1 << 16
RATE: Final = 20.0
"""Requests a second: a client without bounds can take an API server down."""

BURST: Final = 40


class Pace:
    """A token bucket: `burst` requests at once, then `rate` a second."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._lock = threading.Lock()
        self._tokens = self._burst
        self._filled_s = time.monotonic()

    def wait(self) -> None:
        """Return when the next request may go out."""
        time.sleep(self._take(time.monotonic()))

    def _take(self, now_s: float) -> float:
        """Take a token, perhaps one that is still to come; seconds until it is there."""
        with self._lock:
            gained = (now_s - self._filled_s) * self._rate
            self._tokens = min(self._burst, self._tokens + gained) - 1.0
            self._filled_s = now_s
            return max(0.0, -self._tokens / self._rate)


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        path: Below the server's address.
        query: Parameters.
        body: Of JSON, or None.
        content_type: Of the body.
        read_timeout_s: How long nothing may come.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Manifest | None = None
    content_type: str | None = "application/json"
    read_timeout_s: float = READ_TIMEOUT_S

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Transport:
    """One API server, as one user. Safe to use from several threads."""

    def __init__(self, access: Access, pace: Pace) -> None:
        self.server: str = access.configuration.host
        self._access = access
        self._pace = pace
        self._client: RESTClientObject | None = None
        self._ahead_s: float | None = None

    def now_s(self) -> float:
        """Seconds since the epoch by the server's clock; by ours before its first answer.

        Objects carry its times, and a laptop's clock may be minutes off.
        """
        return time.time() + (self._ahead_s or 0.0)

    def json(self, request: Request) -> Manifest:
        """Send a request whose answer is one object.

        Raises:
            RefusedError: The API server says no.
            AwayError: It does not answer.
        """
        import urllib3

        response = self._send(request)
        try:
            self._check(response, request)
            content: Any = json.loads(response.response.data)
        except urllib3.exceptions.HTTPError as error:
            raise AwayError(f"the connection to {self.server} broke: {error}") from error
        except ValueError as error:
            raise self._no_api_server() from error
        finally:
            response.response.release_conn()
        if not isinstance(content, dict):
            raise self._no_api_server()
        return content

    def lines(self, request: Request, on_open: Callable[[], None]) -> Iterator[bytes]:
        """Send a request whose answer is lines, which are given as they come.

        Raises:
            RefusedError: See `json`.
            AwayError: It does not answer, or nothing came for `read_timeout_s`.
        """
        import urllib3

        response = self._send(request)
        try:
            self._check(response, request)
            on_open()
            rest = b""
            for chunk in response.response.stream(_CHUNK_BYTES):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
            if rest:
                yield rest
        except urllib3.exceptions.HTTPError as error:
            raise AwayError(f"the connection to {self.server} broke: {error}") from error
        finally:
            response.response.close()

    # -- inside --------------------------------------------------------------------------------

    def _send(self, request: Request) -> "RESTResponse":
        import urllib3
        from kubernetes.client.exceptions import ApiException

        client = self._open()
        url = self.server + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        self._pace.wait()
        sent_s = time.time()
        try:
            response: RESTResponse = client.request(
                request.method,
                url,
                headers=self._headers(request),
                body=request.body,
                _request_timeout=(CONNECT_TIMEOUT_S, request.read_timeout_s),
            )
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise AwayError(self._away_text(error)) from error
        self._note_time(response.response.headers.get("Date"), sent_s)
        return response

    def _open(self) -> "RESTClientObject":
        if self._client is None:
            from kubernetes.client.rest import RESTClientObject

            configuration = self._access.configuration
            # Retried by who knows what may be sent twice.
            configuration.retries = False
            # A connection that died in silence must not pass for a quiet one.
            configuration.keep_alive = True
            self._client = RESTClientObject(configuration)
        return self._client

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "elastic"}
        if request.content_type is not None:
            headers["Content-Type"] = request.content_type
        # Asked each time: it renews credentials that are about to expire.
        token = self._access.configuration.auth_settings().get("BearerToken")
        if token is not None and token["value"]:
            headers["Authorization"] = token["value"]
        return headers

    def _check(self, response: "RESTResponse", request: Request) -> None:
        code, raw = int(response.status), response.response
        if code >= HTTPStatus.BAD_REQUEST:
            if not is_of_api_server(code, raw.data):
                raise self._no_api_server()
            reason = str(response.reason or "")
            raise refusal(code, raw.data, reason, raw.headers, str(request), self.server)

    def _note_time(self, date: str | None, sent_s: float) -> None:
        """Learn how far the server's clock is ahead of ours, from the whole seconds that it tells.

        It is kept as long as an answer can be reconciled with it, so that of two moments the later
        one has the later time, also within a second.
        """
        try:
            told_s = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            # A proxy's, or none: our own clock has to do.
            return
        least_s, most_s = told_s - time.time(), told_s + 1.0 - sent_s
        if self._ahead_s is None or not least_s <= self._ahead_s <= most_s:
            self._ahead_s = least_s

    def _away_text(self, error: Exception) -> str:
        cause = " ".join(str(getattr(error, "reason", None) or error).split())
        return (
            f"the API server {self.server} (from {self._access.source}) does not answer: {cause}: "
            "see whether the cluster is up and the address right"
        )

    def _no_api_server(self) -> AwayError:
        return AwayError(
            f"{self.server} answers, but does not look like a Kubernetes API server: check the "
            f"server's address in {self._access.source}, or choose another --context"
        )
