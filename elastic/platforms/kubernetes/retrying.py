"""Whether a failed request is sent again, and when. Pure."""

import random
from http import HTTPStatus
from typing import Final

from elastic.platforms.kubernetes.api_errors import CONFLICT, AwayError, RefusedError

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
