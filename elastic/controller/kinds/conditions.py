"""How the conditions of a job follow each other, for kinds that have Kubeflow's five. Pure.

    Created ──▶ Running ⇄ Restarting ──▶ Succeeded | Failed

A job may run while it restarts: those that are left go on beside what is made anew. `Running` stays
in the list when it no longer holds, with what it said last, as the job's own past.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, TypeAlias

from elastic.controller.resources.common import (
    Condition,
    ConditionStatus,
    seconds_of,
    with_condition,
)


class JobCondition(StrEnum):
    """What may be the case with a job."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINAL: Final = (JobCondition.SUCCEEDED, JobCondition.FAILED)
"""A job of which one of these holds has ended."""

Conditions: TypeAlias = tuple[Condition, ...]
"""At most one of each type."""


def written(conditions: Sequence[Condition]) -> list[dict[str, Any]]:
    """The same, as a status has them."""
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in conditions]


def holds(conditions: Sequence[Condition], type_: JobCondition) -> bool:
    """Whether something is the case now."""
    found = find(conditions, type_)
    return found is not None and found.status is ConditionStatus.TRUE


def find(conditions: Sequence[Condition], type_: JobCondition) -> Condition | None:
    """The one of a type, whether or not it holds."""
    return next((each for each in conditions if each.type == type_), None)


def ended_as(conditions: Sequence[Condition]) -> JobCondition | None:
    """How the job has ended; None while it has not."""
    return next((type_ for type_ in FINAL if holds(conditions, type_)), None)


def ended_s(conditions: Sequence[Condition]) -> float | None:
    """When it has, in seconds since the epoch; None while it has not."""
    type_ = ended_as(conditions)
    found = None if type_ is None else find(conditions, type_)
    if found is None or found.last_transition_time is None:
        return None
    return seconds_of(found.last_transition_time)


def told(
    conditions: Conditions, type_: JobCondition, reason: str, message: str, now_s: float
) -> Conditions:
    """The conditions once something has come to be the case; what excludes it does no longer.

    Args:
        conditions: As they are.
        type_: What is the case now.
        reason: Why, in one word.
        message: Why, for people.
        now_s: Seconds since the epoch.
    """
    if type_ in FINAL:
        excluded = {*JobCondition} - {type_, JobCondition.CREATED}
        for other in (each for each in JobCondition if each in excluded):
            conditions = no_longer(conditions, other, now_s)
    return with_condition(conditions, type_, ConditionStatus.TRUE, reason, message, now_s)


def no_longer(
    conditions: Conditions,
    type_: JobCondition,
    now_s: float,
    reason: str | None = None,
    message: str | None = None,
) -> Conditions:
    """The conditions once something is no more the case; the very same where it never was.

    Args:
        conditions: As they are.
        type_: What is not the case now.
        now_s: Seconds since the epoch.
        reason: Why, in one word; what it said last where None.
        message: Why, for people; likewise.
    """
    found = find(conditions, type_)
    if found is None:
        return conditions
    return with_condition(
        conditions,
        type_,
        ConditionStatus.FALSE,
        found.reason if reason is None else reason,
        found.message if message is None else message,
        now_s,
    )
