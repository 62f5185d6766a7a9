"""`python process_controller.py FLAGS…`: a controller whose engine does nothing but tell of itself.

Each of its acts is a ConfigMap that names it, written every few milliseconds: who wrote when is
what the API server has seen.
"""

import sys
import threading

from elastic.controller.assembly import Parts
from elastic.controller.machinery.meter import Meter
from elastic.errors import ElasticError, PlatformError
from elastic.platforms.kubernetes.api.resources import CONFIGMAPS, PODS
from support.process_api import JOBS, OTHERS, WIDGETS, definition


class FakeKind:
    """A kind of job, as far as it matters to whoever installs and starts a controller."""

    component = "test"
    unwatched = ()
    looks_at = ()

    def __init__(self, resource, children, sees_cluster):
        self.resource = resource
        self.children = children
        self.sees_cluster = sees_cluster

    def job_of(self, resource, child):
        return None

    def reconcile(self, observed):
        raise NotImplementedError


KINDS = {
    "testjob": FakeKind(JOBS, (PODS, WIDGETS), False),
    "otherjob": FakeKind(OTHERS, (PODS,), True),
}


class WritingEngine:
    """Writes that it acts, again and again."""

    def __init__(self, cluster, kinds, namespace, num_workers, **_):
        self.is_synced = False
        self._cluster = cluster
        self._namespace = namespace or "team"
        self._meter = Meter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self):
        self._thread.start()

    def stop(self):
        self._stopping.set()
        self._thread.join()
        print("engine stopped", flush=True)

    def sample(self):
        return self._meter.sample(0, ["widgets.parts.elastic.dev"])

    def _write(self):
        number = 0
        while not self._stopping.wait(0.02):
            number += 1
            labels = {"who": sys.argv[-1]}
            manifest = {"metadata": {"name": f"{sys.argv[-1]}-{number}", "labels": labels}}
            try:
                self._cluster.create(CONFIGMAPS.path(self._namespace), manifest)
            except PlatformError:
                self._meter.failed("TestJob")
                continue
            self._meter.passed("TestJob")
            self._meter.acted("create")
            self._meter.answered(0.02)
            self.is_synced = True


def parts(make_engine=WritingEngine):
    """Two kinds, their definitions, and an engine."""
    return Parts(
        lambda is_served: KINDS, lambda: [definition(OTHERS), definition(JOBS)], make_engine
    )


def main():
    from elastic.controller.run import run_until_asked
    from elastic.controller.settings import Settings
    from elastic.platforms.process import start_logging

    start_logging("INFO")
    kubeconfig, port, _ = sys.argv[1:]
    settings = Settings(kubeconfig=kubeconfig, port=int(port), requests_per_second=100)
    try:
        return run_until_asked(settings, parts()) or 0
    except ElasticError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
