"""TFJobs that no controller can run; for templates see `controller/test_tf_job_invalid`, too."""

from elastic.controller.resources import tf_job
from elastic.controller.resources.tf_job import read_tf_job as read
from support.invalid_objects import GONE, Row

__all__ = ["ROWS", "SPEC", "VALID", "read"]

SPEC = tf_job.TFJobSpec
ROLES = "spec.tfReplicaSpecs"


def _role(count=1):
    container = {"name": "tensorflow", "image": "train:1"}
    template = {"spec": {"containers": [container]}}
    return {"replicas": count, "restartPolicy": "OnFailure", "template": template}


VALID = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "job1", "namespace": "team"},
    "spec": {
        "min-instances": 1,
        "max-instances": 4,
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 60,
        "activeDeadlineSeconds": 600,
        "backoffLimit": 3,
        "tfReplicaSpecs": {
            "Chief": _role(),
            "PS": _role(2),
            "Worker": _role(2),
            "Evaluator": _role(),
        },
    },
}

ROWS = [
    Row("spec", GONE, field=ROLES),
    Row("spec", "train"),
    Row("spec.min-instances", 0),
    Row("spec.min-instances", "one"),
    Row("spec.min-instances", 3, "spec.min-instances=3", field=f"{ROLES}.Worker.replicas=2"),
    Row("spec.min-instances", 9, "spec.max-instances=4"),
    Row("spec.max-instances", 1.5),
    Row("spec.max-instances", -4),
    Row("spec.max-instances", 1, "spec.max-instances=1", field=f"{ROLES}.Worker.replicas=2"),
    Row("spec.cleanPodPolicy", "Some"),
    Row("spec.cleanPodPolicy", {}),
    Row("spec.ttlSecondsAfterFinished", "1h"),
    Row("spec.ttlSecondsAfterFinished", -60),
    Row("spec.activeDeadlineSeconds", 0),
    Row("spec.activeDeadlineSeconds", 2**31),
    Row("spec.backoffLimit", -1),
    Row("spec.backoffLimit", "never"),
    Row(ROLES, GONE),
    Row(ROLES, ["Worker"]),
    Row(ROLES, {}, "add Worker or Chief"),
    Row(ROLES, {"PS": _role()}, "has PS: add Worker or Chief"),
    Row(f"{ROLES}.Master", _role(), "the old name of Chief"),
    Row(f"{ROLES}.Worker", GONE, "has no spec.tfReplicaSpecs.Worker", field="spec.min-instances"),
    *(
        row
        for role in ("Chief", "Master", "PS", "Worker", "Evaluator")
        for row in (
            Row(f"{ROLES}.{role}", "two"),
            Row(f"{ROLES}.{role}.replicas", 0),
            Row(f"{ROLES}.{role}.replicas", "many"),
            Row(f"{ROLES}.{role}.restartPolicy", "Sometimes"),
            Row(f"{ROLES}.{role}.template", None),
            Row(f"{ROLES}.{role}.template", ["pod"]),
        )
    ),
    Row(f"{ROLES}.Chief.replicas", 2),
    Row(f"{ROLES}.Evaluator.replicas", 3),
    Row(f"{ROLES}.Worker.replicas", 5, "outside of"),
    Row("metadata.name", "1job"),
    Row("metadata.name", "my.job"),
    Row("metadata.name", "j" * 60),
]
