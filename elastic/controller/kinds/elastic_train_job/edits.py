"""What an edited spec means for a job that is there, and what is said of it. Pure."""

from collections.abc import Iterator
from typing import Final

from elastic.controller.kinds.elastic_train_job.view import View
from elastic.controller.reconciling import EventType, Note
from elastic.controller.resources.base import Reading
from elastic.controller.resources.elastic_train_job import ElasticTrainJobSpec
from elastic.platforms.kubernetes.objects.manifests import spec_for_pods
from elastic.spec.describe import settings
from elastic.spec.settings import WorkerRange

NUM_WORKERS_ANNOTATION: Final = "elastic.dev/num-workers"
"""Of the record: the number of workers that the resource had when it was passed on last. What is
asked of the job by `elastic scale` since is not taken back."""

_WORKERS: Final = "num_workers"
_NAMES: Final = {
    "volume": "spec.state or spec.job.volume",
    "image": "spec.image",
    "queue": "spec.queue",
}


def edit_notes(view: View, reading: Reading[ElasticTrainJobSpec]) -> Iterator[Note]:
    """Events that are told once of each spec.

    Args:
        view: The job.
        reading: Of its spec.
    """
    if view.before.observed_generation == view.generation:
        return
    if reading.problem:
        message = f"the job goes on as it is, since {reading.problem}"
        yield Note("InvalidSpec", message, EventType.WARNING)
    elif reading.unknown:
        fields = ", ".join(reading.unknown)
        message = f"kept and without effect: {fields}; is one of them misspelt?"
        yield Note("UnknownFields", message, EventType.WARNING)
    is_over = view.phase is not None and view.phase.is_final
    if view.record is None or is_over:
        return
    if ignored := list(ignored_edits(view)):
        message = (
            f"the job keeps what it was submitted with, so this has no effect: "
            f"{', '.join(ignored)}; delete it and apply it again to have it so"
        )
        yield Note("EditIgnored", message, EventType.WARNING)
    if problem := range_problem(view):
        yield Note("EditIgnored", problem, EventType.WARNING)


def ignored_edits(view: View) -> Iterator[str]:
    """Fields in which the resource asks for another job than that which was submitted."""
    if view.asked is None:
        return
    asked, recorded = spec_for_pods(view.asked, None), view.job.spec
    for setting in settings():
        name = setting.name
        if name != _WORKERS and getattr(asked, name) != getattr(recorded, name):
            yield _NAMES.get(name, f"spec.job.{name}")


def wanted_workers(view: View) -> int | None:
    """How many workers an edit asks for that has not been passed on; None where there is none.

    The most that the range in the spec allows: its limits themselves stay those that the job was
    submitted with, by which its updates are made.
    """
    asked = _edited_range(view)
    if asked is None or range_problem(view):
        return None
    return asked.maximum


def range_problem(view: View) -> str:
    """Why an edit of the number of workers has no effect; empty where it has, or there is none."""
    asked, limits = _edited_range(view), view.job.spec.num_workers
    if asked is None or limits.minimum <= asked.maximum <= limits.maximum:
        return ""
    return (
        f"spec.job.{_WORKERS}={asked}: the job was submitted with {limits}, and keeps the workers "
        "that it has: choose a number within that"
    )


def _edited_range(view: View) -> WorkerRange | None:
    if view.asked is None or view.record is None:
        return None
    annotations = view.record["metadata"].get("annotations") or {}
    passed_on = annotations.get(NUM_WORKERS_ANNOTATION, str(view.job.spec.num_workers))
    asked = view.asked.num_workers
    return None if str(asked) == passed_on else asked
