"""ElasticTrainJobs that no controller can run."""

from elastic.controller.resources import elastic_train_job
from elastic.controller.resources.common import read_spec
from support.invalid_objects import GONE, Row

SPEC = elastic_train_job.ElasticTrainJobSpec
VALID = {
    "apiVersion": "elastic.dev/v1",
    "kind": "ElasticTrainJob",
    "metadata": {"name": "digits"},
    "spec": {
        "image": "registry.example.com/digits:1",
        "job": {
            "model_def": "digits.digits_torch.CustomModel",
            "training_data_dir": "/data/digits",
            "minibatch_size": 32,
            "num_workers": "1:4",
        },
        "state": {"claimName": "digits"},
    },
}


def read(job):
    return read_spec(SPEC, job)


ROWS = [
    Row("spec", GONE),
    Row("spec", ["job"]),
    Row("spec.job", GONE),
    Row("spec.job", "digits.yaml"),
    Row("spec.job.model_def", GONE),
    Row("spec.job.model_def", "CustomModel", "package.module.Symbol"),
    Row("spec.job.minibatch_size", GONE),
    Row("spec.job.minibatch_size", 0),
    Row("spec.job.minibatch_size", "many"),
    Row("spec.job.minibatch-size", 16, "minibatch_size and minibatch-size", field="spec.job"),
    Row("spec.job.training_data_dir", GONE),
    Row("spec.job.num_workers", "4:1", "'4:1' has a minimum above its maximum"),
    Row("spec.job.num_workers", 2.5),
    Row("spec.job.num_workers", 0, "--num_workers is 0", field="spec.job"),
    Row("spec.job.num_epochs", 0),
    Row("spec.job.start_timeout", 0),
    Row("spec.job.start_timeout", "long"),
    Row("spec.job.master_port", 65536),
    Row("spec.job.kind", "teach"),
    Row("spec.job.kind", "predict", "is missing", field="spec.job.prediction_data_dir"),
    Row("spec.job.prediction_format", "parquet", "has no meaning", field="prediction_format"),
    Row("spec.job.shuffle", "twice"),
    Row("spec.job.use_async", "perhaps"),
    Row("spec.job.log_level", "LOUD"),
    Row("spec.job.envs", ["A=1"]),
    Row("spec.job.envs", {"A": None}, "A is None"),
    Row("spec.job.envs", {"ELASTIC_REPLICA": "x"}, "ELASTIC_REPLICA"),
    Row("spec.job.model_params", "a", "'a' in 'a' has no '='"),
    Row("spec.job.env_secret", 5),
    Row("spec.job.env_secret", ["Not A Name"]),
    Row("spec.job.worker_pod_priority", 1.5, "1.5 is no fraction"),
    Row("spec.job.worker_resource_request", "cpu=much"),
    Row("spec.job.volume", "claim_name=a", "needs a mount_path"),
    Row("spec.job.volume", "claim_name=a,mount_path=/elastic/state", "state names another",
        field="job.volume"),
    Row("spec.job.tolerations", "a:Sometimes"),
    Row("spec.job.platform", "local", "platform=local", field="spec.job"),
    Row("spec.job.platform", "mars"),
    Row("spec.job.cluster_spec", "hook.py", "does not bring along", field="cluster_spec"),
    Row("spec.job.image", "other:2", "differ", field="job.image"),
    Row("spec.image", "", "image is missing", field="image"),
    Row("spec.image", "No Image"),
    Row("spec.image", 3),
    Row("spec.state", "digits"),
    Row("spec.state", {}, "0 of volumeClaimTemplate and claimName"),
    Row("spec.state.volumeClaimTemplate", {"spec": {}}, "2 of", field="spec.state"),
    Row("spec.state.claimName", "Not A Name"),
    Row("spec.state", {"volumeClaimTemplate": {}}, field="spec.state.volumeClaimTemplate.spec"),
    Row("spec.state", {"volumeClaimTemplate": {"metadata": {"labels": ["a"]}, "spec": {}}},
        "labels=['a'] must be texts", field="spec.state.volumeClaimTemplate.metadata"),
    Row("spec.state", {"volumeClaimTemplate": {"spec": {}, "metadata": "a"}},
        field="spec.state.volumeClaimTemplate.metadata"),
    Row("spec.ttlSecondsAfterFinished", -1),
    Row("spec.ttlSecondsAfterFinished", "soon"),
    Row("spec.suspend", "perhaps"),
    Row("spec.queue", "not a queue"),
    Row("spec.queue", "q" * 64),
]  # fmt: skip
