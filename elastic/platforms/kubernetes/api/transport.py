"""How one API server is asked: which it is, as whom, by single requests, and what refusals mean.

Its refusals and silences have names here, by which it is known which of them pass.
"""

import json
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import yaml

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import Manifest

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration
    from kubernetes.client.rest import RESTClientObject, RESTResponse


_FORBIDDEN: Final = re.compile(r'(?:\S+(?: "[^"]*")? is )?forbidden: (?P<cause>.*)', re.DOTALL)
_UNREADABLE: Final = "cannot be handled as a "
MAX_RETRY_AFTER_S: Final = 3600.0
CONFLICT: Final = "Conflict"
"""The reason of a 409 that says nothing about the request: something else changed meanwhile."""


class RefusedError(PlatformError):
    """The API server answered, and the answer is no.

    Attributes:
        code: HTTP status, such as 404.
        reason: One word of the API server's, such as `AlreadyExists`.
        kind: What it speaks of, such as `pods`; empty where it does not say.
        detail: Its own message, without ours around it.
        retry_after_s: How long it asks to be left alone, or None.
    """

    def __init__(
        self,
        message: str,
        code: int,
        reason: str = "",
        detail: str = "",
        retry_after_s: float | None = None,
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.kind = kind

    @property
    def is_taken(self) -> bool:
        """Whether an object could not be created because one of that name is there.

        The same code comes, as `Conflict`, from a quota that others were changing just then.
        """
        return self.code == HTTPStatus.CONFLICT and self.reason != CONFLICT

    @property
    def is_invalid(self) -> bool:
        """Whether what was sent says something that is never taken, whoever sends it, and when.

        A text where a number has to be is no object at all, and bad in another way. What an
        admission webhook denies has the same code, and may be let through another time.
        """
        is_unreadable = self.code == HTTPStatus.BAD_REQUEST and _UNREADABLE in self.detail
        return self.code == HTTPStatus.UNPROCESSABLE_ENTITY or is_unreadable

    @property
    def cause(self) -> str:
        """Why an object is forbidden, without the kind and the name before it; else `detail`."""
        return _cause(self.detail)

    @property
    def is_denied(self) -> bool:
        """Whether this user lacks the right; much else is forbidden for other reasons."""
        return _is_denied(self.code, self.detail)


class AwayError(PlatformError):
    """The API server did not answer."""


def refusal(
    code: int, content: bytes, status_line: str, headers: Mapping[str, str], what: str, server: str
) -> RefusedError:
    """The error behind an answer of 400 or above.

    Args:
        content: The body, which is a `Status` where an API server wrote it.
        status_line: HTTP's word for the code, for bodies of proxies.
        what: Method and path.
    """
    status = _status(content)
    detail, reason, kind = status_line or "no explanation", "", ""
    if status is not None:
        detail, reason = str(status["message"]), str(status.get("reason", ""))
        kind = str((status.get("details") or {}).get("kind", ""))
    text = _text(code, what, server, detail)
    return RefusedError(text, code, reason, detail, _retry_after_s(headers), kind)


def is_of_api_server(code: int, content: bytes) -> bool:
    """Whether an API server may have given an answer of 400 or above.

    Where one is asked for objects, it explains that it has none; other servers know no such page.
    """
    status = _status(content)
    return code != HTTPStatus.NOT_FOUND or (status is not None and status.get("kind") == "Status")


def _status(content: bytes) -> dict[str, Any] | None:
    try:
        status: Any = json.loads(content)
    except ValueError:
        return None
    return status if isinstance(status, dict) and "message" in status else None


def _cause(detail: str) -> str:
    found = _FORBIDDEN.match(detail)
    return found["cause"] if found else detail


def _is_denied(code: int, detail: str) -> bool:
    return code == HTTPStatus.FORBIDDEN and _cause(detail).startswith('User "')


def _text(code: int, what: str, server: str, detail: str) -> str:
    if code == HTTPStatus.UNAUTHORIZED:
        return (
            f"{server} does not know who you are ({detail}): renew the credentials of your "
            "kubeconfig, or choose another --context"
        )
    if _is_denied(code, detail):
        return f"not permitted: {detail}: ask for that right, or use another --namespace"
    return f"{detail} ({what}: {code})"


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    # Kubernetes writes seconds; the date that HTTP allows too is a proxy's, and not worth a parser.
    text = headers.get("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_S) if text.isdecimal() else None


FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 5.0
BUSY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)
"""Answers that say nothing about the request itself, which may go through a moment later."""

_PASSING: Final = BUSY | {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT}


def is_permanent(error: RefusedError) -> bool:
    """Whether the same request is refused again until somebody changes something."""
    return error.code not in _PASSING and error.code < HTTPStatus.INTERNAL_SERVER_ERROR


def pause_before_retry(
    error: AwayError | RefusedError,
    num_tries: int,
    left_s: float,
    rng: random.Random,
    is_create: bool = False,
) -> float | None:
    """Seconds until the same request is sent again, or None to give up.

    Args:
        error: What the last try met.
        num_tries: So far, at least 1.
        left_s: Of the time that the caller gives.
        rng: For the jitter: what was refused together shall not come back together.
        is_create: Whether a new object is asked for, which can be in conflict with no other.
    """
    if left_s <= 0:
        return None
    pause_s = min(LAST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(num_tries - 1, 10))
    pause_s *= rng.uniform(0.5, 1.0)
    if isinstance(error, AwayError):
        return min(left_s, pause_s)
    # Many changed a quota's books at once. The change of an object, though, must be made anew.
    is_crowded = is_create and error.code == HTTPStatus.CONFLICT and error.reason == CONFLICT
    if error.code not in BUSY and not is_crowded:
        return None
    if error.retry_after_s is None:
        return min(left_s, pause_s)
    # Who comes sooner than asked is refused again, and makes a busy server busier.
    return error.retry_after_s if error.retry_after_s <= left_s else None


# Which cluster, as whom and in which namespace: kubectl's conventions, or a pod's own account.


KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
DEFAULT_NAMESPACE: Final = "default"
# What the library stumbles into when a file has another shape than it expects.
_STUMBLES: Final = (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError)
_ACCOUNT_PATH: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server.

    Attributes:
        configuration: Of the client library: host, certificates, credentials and their renewal.
        namespace: What is meant where nobody names one.
        source: Where this comes from, for messages.
    """

    configuration: "Configuration"
    namespace: str
    source: str


RUN_HERE: Final = "add --platform local to run on this machine"
NAME_ONE: Final = "name a --kubeconfig"
"""What to do where no cluster is configured: by commands on jobs, and by those on clusters."""


def find_access(
    kubeconfig: str | None = None, context: str | None = None, remedy: str = RUN_HERE
) -> Access:
    """What kubectl would use: a kubeconfig, or the service account of the pod we run in.

    Args:
        kubeconfig: A file; by default the files of $KUBECONFIG, or ~/.kube/config.
        context: One of its contexts; by default the current one.
        remedy: What to do where nothing is configured.

    Raises:
        PlatformError: Nothing is configured, or what is cannot be used.
    """
    if kubeconfig is not None and not _is_file(_expanded(kubeconfig)):
        raise PlatformError(f"kubeconfig {kubeconfig} is not there: name another file")
    paths = kubeconfig_paths(kubeconfig)
    if paths:
        return _from_files(paths, context)
    if context is not None:
        raise PlatformError(f"context {context!r} is asked for, and there is no kubeconfig file")
    if _is_pod():
        return pod_access()
    raise PlatformError(
        "no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, no "
        f"service account): {remedy}"
    )


def is_configured() -> bool:
    """Whether anything here names a cluster, be it one that cannot be used."""
    return bool(os.environ.get(KUBECONFIG_VARIABLE) or kubeconfig_paths()) or _is_pod()


def _is_pod() -> bool:
    return (_ACCOUNT_PATH / "token").is_file()


def kubeconfig_paths(kubeconfig: str | None = None) -> list[Path]:
    """The kubeconfig files that are there, first one first."""
    listed = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE, "")
    names = [name for name in listed.split(os.pathsep) if name] or ["~/.kube/config"]
    paths = [_expanded(name) for name in names]
    return [path for path in paths if _is_file(path)]


def _expanded(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111 (a home that nobody knows is no error here)


def _is_file(path: Path) -> bool:
    # The method of Path raises, before Python 3.14, where a name is too long.
    return os.path.isfile(path)  # noqa: PTH113


def pod_access() -> Access:
    """The service account of the pod that this process runs in.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        namespace = (_ACCOUNT_PATH / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise PlatformError(
            f"the service account of this pod cannot be used: {error}: "
            "set serviceAccountName and automountServiceAccountToken"
        ) from error
    return Access(configuration, namespace or DEFAULT_NAMESPACE, "the pod's service account")


def _from_files(paths: Sequence[Path], context: str | None) -> Access:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    source = os.pathsep.join(map(str, paths))
    configuration = Configuration()
    try:
        merged: Any = KubeConfigMerger(source).config
        loader = KubeConfigLoader(
            config_dict=merged, active_context=context or None, config_base_path=None
        )
        chosen = loader.current_context["context"]
        _check_names(merged, chosen)
        with _complaints() as complaints:
            loader.load_and_set(configuration)
    except (ConfigException, *_STUMBLES) as error:
        raise PlatformError(
            f"kubeconfig {source} cannot be used: {' '.join(str(error).split())}: mend it, or name "
            "another one with --kubeconfig or --context"
        ) from error
    if complaints:
        raise PlatformError(f"kubeconfig {source}: nobody is logged in: {'; '.join(complaints)}")
    return Access(configuration, chosen.get("namespace") or DEFAULT_NAMESPACE, source)


def _check_names(config: Any, context: dict[str, Any]) -> None:
    """Find what the library makes up: an anonymous user, and a server on this machine.

    Args:
        config: The library's own view of the merged files.
        context: The chosen one.
    """
    name = context.get("user")
    is_there = config.safe_get("users") and config["users"].get_with_name(name, safe=True)
    if name and not is_there:
        raise ValueError(f"there is no user {name!r}, whom the context names")
    cluster = config["clusters"].get_with_name(context["cluster"])["cluster"]
    if not cluster.safe_get("server"):
        raise ValueError(f"cluster {context['cluster']!r} has no server")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what the library only logs: a login program that fails would pass for no login."""
    complaints: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        complaints.append(record.getMessage())
        return False

    root = logging.getLogger()
    root.addFilter(collect)
    try:
        yield complaints
    finally:
        root.removeFilter(collect)


# Single requests to one API server: bytes out, JSON or lines in, nothing tried twice.
#
# The client library takes care of certificates and credentials, and its models are left alone,
# since decoding into them costs ten times what JSON does.


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
