"""What a worker measures of its steps: nothing, until somebody wants to know."""

import logging
from typing import Protocol

from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec

log = logging.getLogger(__name__)


class StepMeter(Protocol):
    """Told as it happens, on the thread that computes."""

    def computed(self, step_s: float) -> None:
        """A minibatch's gradient was computed."""

    def pulled(self, pull_s: float) -> None:
        """The model was asked for and has come, or is here already."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """A gradient was sent and answered."""

    def received(self, size_bytes: int) -> None:
        """A version of the model has come."""


class NoMeter:
    """Measures nothing."""

    def computed(self, step_s: float) -> None:
        """Ignored."""

    def pulled(self, pull_s: float) -> None:
        """Ignored."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """Ignored."""

    def received(self, size_bytes: int) -> None:
        """Ignored."""


def open_meter(spec: JobSpec, index: int) -> StepMeter:
    """Serve what a worker measures; a port in use costs the job nothing but that.

    Args:
        spec: Of the job.
        index: Of the worker: on a shared machine its port follows the master's by so much and one.
    """
    port = spec.served_metrics_port
    if not port:
        return NoMeter()
    traits = spec.platform.traits
    if traits.shares_ports:
        port += 1 + index
    # Nobody else pays for the import.
    from elastic.telemetry.prometheus import WorkerExporter, serve

    exporter = WorkerExporter(spec.job_name, index)
    try:
        serve(exporter.registry, traits.metrics_host, port)
    except (JobSpecError, OverflowError) as error:
        log.warning("worker %d serves no metrics: %s", index, error)
        return NoMeter()
    return exporter
