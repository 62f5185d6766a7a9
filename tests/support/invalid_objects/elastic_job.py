"""ElasticJobs that no controller can run."""

from elastic.controller.kinds.elastic_job.kind import _read as read
from elastic.controller.resources import elastic_job
from support.invalid_objects import GONE, Row

__all__ = ["ROWS", "SPEC", "VALID", "read"]

SPEC = elastic_job.ElasticJobSpec
WORKER = "spec.replicaSpecs.Worker"
POD = f"{WORKER}.template.spec"
VALID = {
    "apiVersion": "elastic.pytorch.org/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {"name": "vision", "namespace": "team"},
    "spec": {
        "rdzvEndpoint": "etcd-service:2379",
        "minReplicas": 2,
        "maxReplicas": 5,
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 600,
        "backoffLimit": 3,
        "replicaSpecs": {
            "Worker": {
                "replicas": 3,
                "restartPolicy": "ExitCode",
                "template": {
                    "metadata": {"labels": {"team": "vision"}},
                    "spec": {"containers": [{"name": "worker", "image": "train:1"}]},
                },
            }
        },
    },
}

ROWS = [
    Row("spec", GONE, field="spec.replicaSpecs"),
    Row("spec", ["replicaSpecs"]),
    Row("spec.rdzvEndpoint", ""),
    Row("spec.rdzvEndpoint", 2379),
    Row("spec.minReplicas", 0),
    Row("spec.minReplicas", "two"),
    Row("spec.minReplicas", 2.5),
    Row("spec.minReplicas", 4, "minReplicas=4", field=f"{WORKER}.replicas=3"),
    Row("spec.maxReplicas", 1, "minReplicas=2"),
    Row("spec.maxReplicas", 2, "maxReplicas=2", field=f"{WORKER}.replicas=3"),
    Row("spec.maxReplicas", True),
    Row("spec.maxReplicas", 2**31),
    Row("spec.cleanPodPolicy", "Some"),
    Row("spec.cleanPodPolicy", ["All"]),
    Row("spec.ttlSecondsAfterFinished", -1),
    Row("spec.ttlSecondsAfterFinished", "1h"),
    Row("spec.activeDeadlineSeconds", 0),
    Row("spec.activeDeadlineSeconds", {"seconds": 5}),
    Row("spec.backoffLimit", -1),
    Row("spec.backoffLimit", 0.5),
    Row("spec.replicaSpecs", GONE),
    Row("spec.replicaSpecs", []),
    Row("spec.replicaSpecs", {}, "missing", field=WORKER),
    Row(WORKER, GONE),
    Row(WORKER, "three"),
    Row(f"{WORKER}.replicas", 0),
    Row(f"{WORKER}.replicas", 9, "maxReplicas=5"),
    Row(f"{WORKER}.replicas", "3x"),
    Row(f"{WORKER}.restartPolicy", "Maybe"),
    Row(f"{WORKER}.restartPolicy", 1),
    Row(f"{WORKER}.template", GONE),
    Row(f"{WORKER}.template", "pod"),
    Row(f"{WORKER}.template.metadata", "labels"),
    Row(f"{WORKER}.template.metadata.labels", {"rank": 1}, "=1", field="labels.rank"),
    Row(POD, GONE, "None"),
    Row(POD, []),
    Row(f"{POD}.containers", []),
    Row(f"{POD}.containers", {"name": "worker"}),
    Row(f"{POD}.containers.0", "worker"),
    Row(f"{POD}.containers.0.name", GONE, "None"),
    Row(f"{POD}.containers.0.env", {"A": "1"}),
    Row(f"{POD}.containers.0.resources", "2"),
    Row("metadata.name", "1job"),
    Row("metadata.name", "my.job"),
    Row("metadata.name", "j" * 60),
]
