"""What an API server's refusals and silences are called, and which of them pass. Pure."""

import json
import random
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError

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
