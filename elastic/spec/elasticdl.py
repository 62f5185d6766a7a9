"""Settings of ElasticDL that have another name here, or none: what its users are told of each."""

from typing import Final

_NO_SERVERS: Final = "the master holds the parameters, there are no parameter servers"

INSTEAD: Final = {
    "feed": "name the function with --dataset_fn; it gets no third argument",
    "num_minibatches_per_task": (
        "give --records_per_task instead: as many minibatches times --minibatch_size"
    ),
    "sync_version_tolerance": (
        "give --max_staleness with --use_async; without it a gradient of an older version is "
        "always refused"
    ),
    "relaunch_on_worker_failure": (
        "give --max_worker_failures instead, which counts crashes of your code in the whole job"
    ),
    "num_ps_pods": f"leave it out: {_NO_SERVERS}",
    "ps_resource_request": f"give --master_resource_request instead: {_NO_SERVERS}",
    "ps_resource_limit": f"give --master_resource_limit instead: {_NO_SERVERS}",
    "ps_pod_priority": f"give --master_pod_priority instead: {_NO_SERVERS}",
    "distribution_strategy": (
        "leave it out: --grads_to_wait, --use_async and --get_model_steps choose it"
    ),
    "log_loss_steps": "leave it out: `elastic status` and `elastic train` show the loss",
    "populate_env_names": "give the variables with --envs instead",
    "cluster_spec_json": "give a file with --cluster_spec instead",
    "yaml": "--dry_run prints the whole job, and --config runs what was printed",
}
"""What takes the place of each, or why nothing does."""
