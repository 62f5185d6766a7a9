"""Serves a worker's metrics, where its job has them."""

import logging

from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec
from elastic.worker.meter import NoMeter, StepMeter

log = logging.getLogger(__name__)


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
