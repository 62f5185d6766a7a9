"""The settings that Kubernetes alone reads; elsewhere they are accepted, and said to be unused."""

from typing import Final, Literal

from pydantic import BaseModel, field_validator

from elastic.spec.platforms import PlatformName
from elastic.spec.settings import setting
from elastic.spec.settings.cluster_forms import (
    Image,
    Namespace,
    NodeSelector,
    ObjectNames,
    PriorityClass,
    QueueName,
    Resources,
    SecretNames,
    Tolerations,
    Volumes,
    WorkerPriority,
)
from elastic.spec.settings.text_forms import Truth

K8S: Final = PlatformName.KUBERNETES


class ClusterSettings(BaseModel):
    """The image of a job, and the pods it is run by."""

    image: Image = setting(
        "",
        "ready image that holds the model_zoo at /model_zoo; nothing is built then",
        group="Kubernetes",
        only=K8S,
    )
    docker_image_repository: str = setting(
        "",
        "repository the image is pushed to; empty: no push",
        group="Kubernetes",
        only=K8S,
        aliases=("docker_image_prefix",),
    )
    image_base: Image = setting(
        "", "image that the model_zoo is added to", group="Kubernetes", only=K8S
    )
    extra_pypi_index: str = setting(
        "", "further package index for the image's requirements", group="Kubernetes", only=K8S
    )
    docker_base_url: str = setting(
        "unix://var/run/docker.sock",
        "address of the Docker engine; DOCKER_HOST or the Docker context replace the default",
        group="Kubernetes",
        only=K8S,
    )
    docker_tlscacert: str = setting(
        "", "authority that signed the Docker engine's certificate", group="Kubernetes", only=K8S
    )
    docker_tlscert: str = setting(
        "", "client certificate for the Docker engine", group="Kubernetes", only=K8S
    )
    docker_tlskey: str = setting(
        "", "client key for the Docker engine", group="Kubernetes", only=K8S
    )
    namespace: Namespace = setting(
        "",
        "namespace of the pods; that of the kubeconfig's context by default",
        group="Kubernetes",
        only=K8S,
    )
    service_account: ObjectNames = setting(
        "elastic-master",
        "service account of the master; `elastic install` makes it",
        group="Kubernetes",
        only=K8S,
    )
    master_resource_request: Resources = setting(
        "cpu=0.1,memory=1024Mi", "what the master asks for", group="Kubernetes", only=K8S
    )
    master_resource_limit: Resources = setting(
        "", "what the master may use; the request by default", group="Kubernetes", only=K8S
    )
    worker_resource_request: Resources = setting(
        "cpu=1,memory=4096Mi", "what a worker asks for", group="Kubernetes", only=K8S
    )
    worker_resource_limit: Resources = setting(
        "", "what a worker may use; the request by default", group="Kubernetes", only=K8S
    )
    ps_resource_request: Resources = setting(
        "cpu=1,memory=4096Mi", "what a parameter server asks for", group="Kubernetes", only=K8S
    )
    ps_resource_limit: Resources = setting(
        "",
        "what a parameter server may use; the request by default",
        group="Kubernetes",
        only=K8S,
    )
    redis_resource_request: Resources = setting(
        "cpu=0.5,memory=2048Mi",
        "what a Redis that the job brings along asks for; all rows are in its memory",
        group="Kubernetes",
        only=K8S,
    )
    redis_resource_limit: Resources = setting(
        "",
        "what a Redis that the job brings along may use; the request by default",
        group="Kubernetes",
        only=K8S,
    )
    master_pod_priority: PriorityClass = setting(
        "", "priority class of the master", group="Kubernetes", only=K8S
    )
    worker_pod_priority: WorkerPriority = setting(
        "",
        "priority class of the workers, or the fraction of them that is high",
        group="Kubernetes",
        only=K8S,
    )
    ps_pod_priority: PriorityClass = setting(
        "", "priority class of the parameter servers", group="Kubernetes", only=K8S
    )
    redis_pod_priority: PriorityClass = setting(
        "",
        "priority class of a Redis that the job brings along",
        group="Kubernetes",
        only=K8S,
    )
    queue: QueueName = setting(
        "",
        "queue of the cluster that the pods wait in, of Kueue, Volcano or KAI; `default` where "
        "there are the groups of Kubernetes alone",
        group="Kubernetes",
        only=K8S,
    )
    autoscale: Truth = setting(
        False,
        "begin with the fewest of num_workers MIN:MAX, and have as many as the autoscaler of the "
        "cluster gives (`elastic controller --autoscale`), none for a while where MIN is 0",
        group="Kubernetes",
        only=K8S,
    )
    volume: Volumes = setting(
        "",
        "volumes, as claim_name=…,mount_path=…;host_path=…,mount_path=…",
        group="Kubernetes",
        only=K8S,
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = setting(
        "Always", "when nodes pull the image", group="Kubernetes", only=K8S
    )
    image_pull_secrets: ObjectNames = setting(
        "", "secrets that the image is pulled with, as a,b", group="Kubernetes", only=K8S
    )
    env_secret: SecretNames = setting(
        (),
        "Secrets whose every key is a variable of the replicas' environment; may be given again",
        group="Kubernetes",
        only=K8S,
    )
    node_selector: NodeSelector = setting(
        "", "labels of the nodes that pods may run on, as k1=v1,k2=v2", group="Kubernetes", only=K8S
    )
    tolerations: Tolerations = setting(
        "",
        "taints that the pods put up with, as key=value:effect,key:effect",
        group="Kubernetes",
        only=K8S,
    )
    restart_policy: Literal["Never", "OnFailure", "Always"] = setting(
        "Never",
        "of the workers' pods, as ElasticDL has it; only Never is taken, since the master replaces "
        "workers",
        group="Kubernetes",
        only=K8S,
    )
    cluster_spec: str = setting(
        "",
        "Python file whose `cluster` object edits pods and services, or YAML merged into the pods",
        group="Kubernetes",
        only=K8S,
    )

    @field_validator("restart_policy")
    @classmethod
    def _check_restart_policy(cls, value: str) -> str:
        if value != "Never":
            # In place nobody would count its crashes, and its records would stay leased to it.
            raise ValueError(
                f"{value!r} would restart failed workers in their pods, unseen by the master, "
                "which replaces and counts them: leave it out, and see max_worker_failures"
            )
        return value
