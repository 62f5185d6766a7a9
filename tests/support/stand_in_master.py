"""What the master of an ElasticTrainJob does for all to see: it publishes, and launches workers."""

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import replica_pod, spec_of, submission_of
from elastic.platforms.kubernetes.objects.names import Owner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.status import JobPhase, JobStatus, WorkerStatus
from support.api_objects import Place


class StandInMaster:
    """Of one job, whose objects an API server in memory has."""

    def __init__(self, objects, namespace, job):
        self._objects = objects
        self._namespace = namespace
        self._job = job

    def publish(self, phase=JobPhase.RUNNING, **more):
        told = JobStatus(job_name=self._job, phase=phase, started_s=1.0, **more)
        place = self._place("configmaps", names.status_name(self._job))
        self._objects.merge(place, {"data": {names.STATUS_KEY: told.model_dump_json()}})

    def record(self):
        return self._objects.get(self._place("configmaps", names.record_name(self._job)))

    def begin(self, num_workers):
        """Publish that the job runs, and launch workers; the names of their pods."""
        master = self._objects.get(self._place("pods", names.master_name(self._job)))
        record = self.record()
        submission = submission_of(record)
        job = Job(
            spec_of(record),
            self._namespace,
            submission.uid,
            submission.image,
            owner=submission.owner,
        )
        indexes = range(num_workers)
        rows = (WorkerStatus(index=index, launch=1, phase="Running") for index in indexes)
        self.publish(workers=tuple(rows))
        pods = [replica_pod(job, ReplicaId("worker", i, 1), Owner.of(master)) for i in indexes]
        for pod in pods:
            self._objects.create(self._place("pods"), pod)
        return [pod["metadata"]["name"] for pod in pods]

    def _place(self, plural, name=""):
        return Place("", "v1", plural, self._namespace, name)
