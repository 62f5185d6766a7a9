"""Requests to one API server: raw JSON, retried, paced, with errors in the user's terms.

No other module of this package talks to an API server, and none but this and `kubeconfig` imports
the client library: it takes care of certificates and credentials, and its models are left alone,
since decoding into them costs ten times what JSON does.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.kubeconfig import Access, find_access, pod_access
from elastic.platforms.kubernetes.names import Manifest
from elastic.platforms.kubernetes.pace import Pace

if TYPE_CHECKING:
    from kubernetes.client.rest import RESTClientObject, RESTResponse

CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 30.0
FIRST_PAUSE_S: Final = 0.2
LAST_PAUSE_S: Final = 5.0
PATIENCE_S: Final = 10.0
_CHUNK_BYTES: Final = 1 << 16
_BUSY: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class RefusedError(PlatformError):
    """The API server answered, and the answer is no.

    Attributes:
        code: HTTP status, such as 404.
        reason: One word of the API server's, such as `AlreadyExists`.
        detail: Its own message, without ours around it.
    """

    def __init__(self, message: str, code: int, reason: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.detail = detail


class AwayError(PlatformError):
    """The API server did not answer."""


class Cluster:
    """One API server, as one user. Safe to use from several threads."""

    def __init__(
        self, access: Access, pace: Pace | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        """Keep the parts; nothing is sent before the first request.

        Args:
            access: How to reach the API server.
            pace: Bounds the requests a second; a default one where not given.
            patience_s: How long a request is tried again while the API server is away or busy.
        """
        self.namespace = access.namespace
        self.server: str = access.configuration.host
        self._access = access
        self._pace = pace or Pace()
        self._patience_s = patience_s
        self._client: RESTClientObject | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Manifest:
        """Read one object, or a list of them.

        Raises:
            RefusedError: The API server says no; `code` is 404 where there is no such object.
            AwayError: It does not answer.
        """
        return self._call("GET", path, query)

    def create(self, path: str, manifest: Manifest, dry_run: bool = False) -> Manifest:
        """Create an object below the path of its collection; returns it as it was stored.

        Raises:
            RefusedError: See `get`; `code` is 409 where one of that name is there.
            AwayError: It does not answer.
        """
        query = {"dryRun": "All"} if dry_run else None
        try:
            return self._call("POST", path, query, manifest)
        except RefusedError as error:
            if error.code != HTTPStatus.CONFLICT or dry_run:
                raise
            # An earlier try may have got through, and only its answer was lost.
            own = self._own_object(path, manifest)
            if own is None:
                raise
            return own

    def patch(self, path: str, change: Manifest) -> Manifest:
        """Merge a change into an object (RFC 7386: null removes).

        Raises:
            RefusedError: See `get`.
            AwayError: It does not answer.
        """
        return self._call("PATCH", path, None, change, "application/merge-patch+json")

    def delete(self, path: str, grace_s: float | None = None, uid: str | None = None) -> None:
        """Ask for an object to be deleted; it is fine if there is none.

        Args:
            path: Of the object.
            grace_s: Seconds a pod may take to end; its own grace by default, 0 removes it at once.
            uid: Only if the object is still this one; another of the same name is left alone.

        Raises:
            RefusedError: See `get`.
            AwayError: It does not answer.
        """
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options["propagationPolicy"] = "Background"
        if grace_s is not None:
            options["gracePeriodSeconds"] = int(-(-grace_s // 1))
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            self._call("DELETE", path, None, options)
        except RefusedError as error:
            is_other = uid is not None and error.code == HTTPStatus.CONFLICT
            if error.code != HTTPStatus.NOT_FOUND and not is_other:
                raise

    def lines(
        self,
        path: str,
        query: Mapping[str, str],
        read_timeout_s: float = READ_TIMEOUT_S,
        on_open: Callable[[], None] = lambda: None,
    ) -> Iterator[bytes]:
        """The lines of a watch or of a log, as they come, until the API server ends them.

        Args:
            path: Of what is read.
            query: Parameters.
            read_timeout_s: How long nothing may come.
            on_open: Called when the API server has begun to answer.

        Raises:
            RefusedError: See `get`.
            AwayError: It does not answer, or nothing came for `read_timeout_s`.
        """
        import urllib3

        response = self._send("GET", path, query, None, None, read_timeout_s)
        try:
            _check(response, f"GET {path}", self.server)
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

    def _own_object(self, path: str, manifest: Manifest) -> Manifest | None:
        """What stands in the place of a new object, where it is the very same one."""
        metadata = manifest["metadata"]
        try:
            found = self._call("GET", f"{path}/{metadata['name']}")
        except RefusedError:
            return None
        labels = metadata.get("labels") or {}
        there = found["metadata"].get("labels") or {}
        is_own = bool(labels) and labels.items() <= there.items()
        return found if is_own else None

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        deadline_s = time.monotonic() + self._patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self._call_once(method, path, query, body, content_type)
            except (AwayError, RefusedError) as error:
                if isinstance(error, RefusedError) and error.code not in _BUSY:
                    raise
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise
            # Jitter: what was refused together shall not come back together.
            time.sleep(min(left_s, pause_s * random.uniform(0.5, 1.0)))  # noqa: S311 - no secret
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _call_once(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Manifest | None,
        content_type: str,
    ) -> Manifest:
        import urllib3

        response = self._send(method, path, query, body, content_type, READ_TIMEOUT_S)
        try:
            _check(response, f"{method} {path}", self.server)
            content: Any = json.loads(response.response.data)
        except urllib3.exceptions.HTTPError as error:
            raise AwayError(f"the connection to {self.server} broke: {error}") from error
        except ValueError as error:
            raise AwayError(
                f"{self.server} answers, but not as an API server does: check the server's "
                f"address in {self._access.source}"
            ) from error
        finally:
            response.response.release_conn()
        assert isinstance(content, dict)
        return content

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Manifest | None,
        content_type: str | None,
        read_timeout_s: float,
    ) -> "RESTResponse":
        import urllib3
        from kubernetes.client.exceptions import ApiException

        client = self._open()
        url = self.server + path
        if query:
            url += "?" + urlencode(query)
        self._pace.wait()
        try:
            response: RESTResponse = client.request(
                method,
                url,
                headers=self._headers(content_type),
                body=body,
                _request_timeout=(CONNECT_TIMEOUT_S, read_timeout_s),
            )
            return response  # noqa: TRY300 - nothing else can raise here
        except (urllib3.exceptions.HTTPError, ApiException) as error:
            raise AwayError(self._away_text(error)) from error

    def _open(self) -> "RESTClientObject":
        if self._client is None:
            from kubernetes.client.rest import RESTClientObject

            configuration = self._access.configuration
            # Retried here, where it is known what may be sent twice.
            configuration.retries = False
            # A connection that died in silence must not pass for a quiet one.
            configuration.keep_alive = True
            self._client = RESTClientObject(configuration)
        return self._client

    def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "elastic"}
        if content_type is not None:
            headers["Content-Type"] = content_type
        # Asked each time: it renews credentials that are about to expire.
        token = self._access.configuration.auth_settings().get("BearerToken")
        if token is not None and token["value"]:
            headers["Authorization"] = token["value"]
        return headers

    def _away_text(self, error: Exception) -> str:
        cause = " ".join(str(getattr(error, "reason", None) or error).split())
        return (
            f"the API server {self.server} (from {self._access.source}) does not answer: {cause}: "
            "see whether the cluster is up and the address right"
        )


def connect(
    kubeconfig: str | None = None, context: str | None = None, patience_s: float = PATIENCE_S
) -> Cluster:
    """The cluster that kubectl would use, see `find_access`.

    Raises:
        PlatformError: Nothing is configured, or what is cannot be used.
    """
    return Cluster(find_access(kubeconfig, context), patience_s=patience_s)


def connect_from_pod(patience_s: float = PATIENCE_S) -> Cluster:
    """The cluster of the pod that this process runs in, as the pod's service account.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    return Cluster(pod_access(), patience_s=patience_s)


def _check(response: "RESTResponse", what: str, server: str) -> None:
    """Raise what the API server's own error says."""
    code = int(response.status)
    if code < HTTPStatus.BAD_REQUEST:
        return
    try:
        status: Any = json.loads(response.response.data)
        detail, reason = str(status["message"]), str(status.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, reason = str(response.reason or "no explanation"), ""
    raise RefusedError(_refusal_text(code, what, server, detail), code, reason, detail)


def _refusal_text(code: int, what: str, server: str, detail: str) -> str:
    if code == HTTPStatus.UNAUTHORIZED:
        return (
            f"{server} does not know who you are ({detail}): renew the credentials of your "
            "kubeconfig, or choose another --context"
        )
    if code == HTTPStatus.FORBIDDEN and "cannot" in detail:
        return f"not permitted: {detail}: ask for that right, or use another --namespace"
    return f"{detail} ({what}: {code})"
