"""A job that was made from a resource, in an API server of this process.

The test is its controller.
"""

from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    SERVICES,
)
from elastic.platforms.kubernetes.job.objects import JobObjects
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.manifests import Submission, status_of
from elastic.platforms.kubernetes.objects.names import TRAIN_JOBS, Owner, ResourceOwner
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from support.api_objects import Place
from support.api_server_in_memory import NAMESPACE
from support.pods import running

NAME = "j"
STATUS = CONFIGMAPS.path(NAMESPACE, "elastic-j-status")
MASTER = "elastic-j-master"


class OwnedJob:
    """The resource, and what its controller makes of it, by the functions it does that with."""

    def __init__(self, api, **settings):
        self.api = api
        self.cluster = api.cluster()
        kind = {"apiVersion": TRAIN_JOBS.api_version, "kind": TRAIN_JOBS.kind}
        made = self._create(TRAIN_JOBS, {**kind, "metadata": {"name": NAME}})
        self.owner = ResourceOwner(*kind.values(), NAME, made["metadata"]["uid"])
        spec = JobSpec(
            job_name=NAME, model_zoo="z", model_def="m.C", training_data_dir="d",
            minibatch_size=1, num_workers=2, **settings,
        )  # fmt: skip
        self.job = Job(spec, NAMESPACE, self.owner.submission_uid, "image:1", owner=self.owner)
        submission = Submission(self.job.submission_uid, 1.0, "image:1", self.owner)
        self._create(CONFIGMAPS, manifests.record(self.job, submission))
        self._create(CONFIGMAPS, manifests.empty_status(self.job))
        self._create(SECRETS, manifests.token_secret(self.job, "t"))
        self._create(SERVICES, manifests.service(self.job))

    @property
    def objects(self):
        return JobObjects(self.cluster, NAMESPACE, NAME)

    @property
    def platform(self):
        return KubernetesPlatform(self.cluster, NAMESPACE)

    def make_master(self):
        """A master's pod, and what it is as an owner."""
        manifest = manifests.master_pod(self.job)
        manifest["spec"]["nodeName"] = "node-0"
        pod = self._create(PODS, manifest)
        self.run(MASTER)
        return Owner.of(pod)

    def lose_master(self):
        """Its pod is removed by force, as from a node that is lost."""
        self.cluster.delete(PODS.path(NAMESPACE, MASTER), grace_s=0.0)

    def run(self, name):
        """The container of a pod runs."""
        place = Place("", "v1", "pods", NAMESPACE, name, "status")
        self.api.objects.merge(place, {"status": {"phase": "Running", **running()}})

    def lose_pod(self, name):
        self.cluster.delete(PODS.path(NAMESPACE, name), grace_s=0.0)

    def pods(self):
        """Names and launches of the workers' pods."""
        found = self.cluster.get(PODS.path(NAMESPACE))["items"]
        return {
            pod["metadata"]["name"]: int(pod["metadata"]["labels"]["elastic-launch"])
            for pod in found
            if pod["metadata"]["name"] != MASTER
        }

    def names(self):
        """All that is there of the job."""
        kinds = (CONFIGMAPS, PODS, SECRETS, SERVICES, TRAIN_JOBS)
        return sorted(
            f"{kind.plural}/{item['metadata']['name']}"
            for kind in kinds
            for item in self.cluster.get(kind.path(NAMESPACE))["items"]
        )

    def publish(self, status):
        """As its master does."""
        self.cluster.patch(STATUS, manifests.status(self.job, status))

    def published(self):
        return status_of(self.cluster.get(STATUS))

    def _create(self, resource, manifest):
        return self.cluster.create(resource.path(NAMESPACE), manifest)
