"""What an API server's refusals and silences are called, in the user's terms. Pure."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from elastic.errors import PlatformError

MAX_RETRY_AFTER_S: Final = 3600.0


class RefusedError(PlatformError):
    """The API server answered, and the answer is no.

    Attributes:
        code: HTTP status, such as 404.
        reason: One word of the API server's, such as `AlreadyExists`.
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
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.detail = detail
        self.retry_after_s = retry_after_s


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
    try:
        status: Any = json.loads(content)
        detail, reason = str(status["message"]), str(status.get("reason", ""))
    except (ValueError, KeyError, TypeError, AttributeError):
        detail, reason = status_line or "no explanation", ""
    text = _text(code, what, server, detail)
    return RefusedError(text, code, reason, detail, _retry_after_s(headers))


def _text(code: int, what: str, server: str, detail: str) -> str:
    if code == HTTPStatus.UNAUTHORIZED:
        return (
            f"{server} does not know who you are ({detail}): renew the credentials of your "
            "kubeconfig, or choose another --context"
        )
    if code == HTTPStatus.FORBIDDEN and "cannot" in detail:
        return f"not permitted: {detail}: ask for that right, or use another --namespace"
    return f"{detail} ({what}: {code})"


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    # Kubernetes writes seconds; the date that HTTP allows too is a proxy's, and not worth a parser.
    text = headers.get("Retry-After", "")
    return min(float(text), MAX_RETRY_AFTER_S) if text.isdecimal() else None
