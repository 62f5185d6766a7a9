"""TrainingJobs that no controller can run."""

from elastic.controller.resources import training_job
from elastic.controller.resources.training_job import read_job as read
from support.invalid_objects import GONE, Row

__all__ = ["ROWS", "SPEC", "VALID", "read"]

SPEC = training_job.TrainingJobSpec


def _role(**fields):
    amounts = {"cpu": "500m", "memory": "600Mi"}
    return {"resources": {"limits": {**amounts}, "requests": {**amounts}}, **fields}


VALID = {
    "apiVersion": "paddlepaddle.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "paddlejob", "namespace": "team"},
    "spec": {
        "image": "train:1",
        "port": 7164,
        "ports_num": 1,
        "ports_num_for_sparse": 1,
        "passes": 2,
        "fault_tolerant": True,
        "mountPath": "/work",
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "nodeSelector": {"disk": "fast"},
        "host_network": False,
        "imagePullSecrets": [{"name": "login"}],
        "master": _role(command=["serve"]),
        "pserver": _role(command=["serve"], **{"min-instance": 2, "max-instance": 2}),
        "trainer": _role(
            command=["train"], entrypoint="python train.py", workspace="/home", passes=2,
            **{"min-instance": 2, "max-instance": 6},
        ),
    },
}  # fmt: skip


def _of_role(role):
    at = f"spec.{role}"
    return (
        Row(at, "one"),
        Row(f"{at}.resources", "1"),
        Row(f"{at}.resources.limits", ["cpu"]),
        Row(f"{at}.resources.limits.cpu", "lots"),
        Row(f"{at}.resources.requests", 1),
        Row(f"{at}.resources.requests.memory", "-1Gi"),
        Row(f"{at}.resources.requests.cpu", 2, "cpu=2 is above", field=f"{at}.resources.requests"),
        Row(f"{at}.command", []),
        Row(f"{at}.command", "serve now"),
    )


ROWS = [
    Row("spec", GONE, field="spec.pserver"),
    Row("spec", ["pserver"]),
    Row("spec.image", ""),
    Row("spec.image", "two words"),
    Row("spec.port", 0),
    Row("spec.port", "7164"),
    Row("spec.port", 65535, "65536"),
    Row("spec.ports_num", 0),
    Row("spec.ports_num", True),
    Row("spec.ports_num_for_sparse", -1),
    Row("spec.ports_num_for_sparse", 1.5),
    Row("spec.passes", 0),
    Row("spec.passes", "ten"),
    Row("spec.fault_tolerant", "yes"),
    Row("spec.mountPath", "work"),
    Row("spec.mountPath", "/a:b"),
    Row("spec.volumes", {"name": "data"}),
    Row("spec.volumes", [{"emptyDir": {}}]),
    Row("spec.volumes", [{"name": "data"}, {"name": "data"}]),
    Row("spec.volumeMounts", "/data"),
    Row("spec.volumeMounts", [{"name": "other", "mountPath": "/b"}]),
    Row("spec.volumeMounts", [{"name": "data"}]),
    Row("spec.nodeSelector", ["disk"]),
    Row("spec.tolerations", {"key": "spot"}),
    Row("spec.tolerations", ["spot"], field="spec.tolerations.0"),
    Row("spec.nodeSelector.disk", 1),
    Row("spec.host_network", 1),
    Row("spec.imagePullSecrets", "login"),
    Row("spec.imagePullSecrets.0", "login"),
    Row("spec.imagePullSecrets.0.name", GONE),
    Row("spec.imagePullSecrets.0.name", ""),
    Row("spec.pserver", GONE),
    Row("spec.trainer", GONE),
    *(row for role in ("master", "pserver", "trainer") for row in _of_role(role)),
    *(
        row
        for role in ("pserver", "trainer")
        for row in (
            Row(f"spec.{role}.min-instance", GONE),
            Row(f"spec.{role}.min-instance", 0),
            Row(f"spec.{role}.min-instance", 2**31),
            Row(f"spec.{role}.max-instance", 0),
            Row(f"spec.{role}.max-instance", "six"),
            Row(f"spec.{role}.max-instance", 1, "min-instance, which is 2"),
        )
    ),
    Row("spec.trainer.entrypoint", ["python"]),
    Row("spec.trainer.workspace", 1),
    Row("spec.trainer.passes", -2),
    Row("metadata.name", "x" * 56, "x" * 56),
]
