"""The settings that Kubernetes alone reads, and their form; elsewhere they are said to be unused.

They stay text in the `JobSpec`; the values are checked wherever a job runs, so that a job tried
on one machine does not fail on the cluster for a typing error. Whoever makes pods reads them with
the `parse_` functions, which the checks share.
"""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, field_validator

from elastic.spec.platforms import PlatformName
from elastic.spec.settings import setting
from elastic.spec.settings.text_forms import Envs, Truth

_CPU: Final = re.compile(r"\d+(\.\d+)?m?")
_BYTES: Final = re.compile(r"\d+(\.\d+)?([kMGTPE]|[KMGTPE]i)?")
_WHOLE: Final = re.compile(r"\d+")
_BYTE_RESOURCES: Final = frozenset({"memory", "disk", "ephemeral-storage"})
_DEVICE: Final = re.compile(r"gpu|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-zA-Z0-9]([-\w.]*\w)?")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CLASS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_NAME: Final = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-zA-Z0-9]([-\w.]{0,61}[a-zA-Z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"([a-zA-Z0-9]([-\w.]{0,61}[a-zA-Z0-9])?)?")
_VOLUME_KEYS: Final = ("claim_name", "host_path", "mount_path", "sub_path", "type", "read_only")
_TRUTHS: Final = {"true": True, "false": False}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_LABEL_LENGTH: Final = 63
_RESOURCE_NAMES: Final = {"disk": "ephemeral-storage", "gpu": "nvidia.com/gpu"}

_OWN_FOLDER: Final = "/elastic/"
_IMAGE: Final = re.compile(
    # A registry with its port, path components, a tag, a digest.
    r"([a-zA-Z0-9][-a-zA-Z0-9.]*(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[-\w.]{0,127})?(@[A-Za-z][A-Za-z0-9+._-]*:[0-9a-fA-F]{32,})?"
)

OWN_VARIABLES: Final = "ELASTIC_"
"""Begins every variable that replicas depend on."""

STATE_MOUNT: Final = "/elastic/state"
"""Where a master keeps what outlives its container; a volume there outlives its pod as well."""

HIGH_PRIORITY: Final = "high"
LOW_PRIORITY: Final = "low"
"""The priority classes that a fraction in `worker_pod_priority` speaks of."""


@dataclass(frozen=True, slots=True)
class VolumeForm:
    """One volume of a job's pods; either a claim or a path of the node.

    Attributes:
        host_type: What Kubernetes checks the node's path to be, such as Directory.
    """

    mount_path: str
    claim_name: str | None = None
    host_path: str | None = None
    host_type: str | None = None
    sub_path: str | None = None
    read_only: bool = False

    @property
    def is_for_state(self) -> bool:
        """Whether the master keeps its cuts there, instead of in its pod."""
        return self.mount_path == STATE_MOUNT


@dataclass(frozen=True, slots=True)
class TolerationForm:
    """One taint that the pods put up with; None stands for any."""

    key: str | None
    value: str | None = None
    effect: str | None = None


def _pairs(text: str, whole: str) -> dict[str, str]:
    """Read `a=x,b=y`."""
    pairs: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if not key or not value:
            raise ValueError(f"{item!r} in {whole!r} is not of the form name=value")
        if key in pairs:
            raise ValueError(f"{key!r} comes twice in {whole!r}: leave one out")
        pairs[key] = value
    return pairs


def check_resources(text: str) -> str:
    """Check `cpu=1,memory=4096Mi,nvidia.com/gpu=1`.

    Raises:
        ValueError: A resource is unknown, or its amount is none.
    """
    for resource, amount in _pairs(text, text).items():
        if resource == "cpu":
            pattern, example = _CPU, "0.5 or 500m"
        elif resource in _BYTE_RESOURCES:
            pattern, example = _BYTES, "512Mi or 4Gi"
        elif _DEVICE.fullmatch(resource):
            pattern, example = _WHOLE, "1"
        else:
            raise ValueError(
                f"{resource!r} in {text!r} is no resource: use cpu, memory, disk, "
                "ephemeral-storage, gpu or a name like nvidia.com/gpu"
            )
        if not pattern.fullmatch(amount):
            raise ValueError(f"{resource}={amount} is no amount of {resource}: write {example}")
    return text


def parse_resources(text: str) -> dict[str, str]:
    """Amounts by the names that Kubernetes has for resources."""
    return {_RESOURCE_NAMES.get(name, name): amount for name, amount in _pairs(text, text).items()}


def check_volumes(text: str) -> str:
    """Check `claim_name=c,mount_path=/data;host_path=/d,mount_path=/e`.

    Raises:
        ValueError: A key is unknown, or a volume lacks its source or its mount path.
    """
    if text.strip() and not parse_volumes(text):
        raise ValueError(f"{text!r} names no volume: write claim_name=NAME,mount_path=/PATH")
    return text


def parse_volumes(text: str) -> tuple[VolumeForm, ...]:
    """Read volumes.

    Raises:
        ValueError: See `check_volumes`.
    """
    volumes = tuple(_volume(v) for v in filter(None, (part.strip() for part in text.split(";"))))
    seen: set[str] = set()
    for volume in volumes:
        if volume.mount_path in seen:
            raise ValueError(f"two volumes are mounted at {volume.mount_path}: leave one out")
        seen.add(volume.mount_path)
    return volumes


def state_volume(text: str) -> VolumeForm | None:
    """The volume on which a master keeps its cuts; None where they stay in its pod.

    Raises:
        ValueError: See `check_volumes`.
    """
    return next((volume for volume in parse_volumes(text) if volume.is_for_state), None)


def _volume(text: str) -> VolumeForm:
    pairs = _pairs(text, text)
    for key in pairs:
        if key not in _VOLUME_KEYS:
            raise ValueError(f"{key!r} in {text!r} is unknown: use {', '.join(_VOLUME_KEYS)}")
    if ("claim_name" in pairs) == ("host_path" in pairs):
        raise ValueError(f"{text!r} needs one of claim_name and host_path")
    if not pairs.get("mount_path", "").startswith("/"):
        raise ValueError(f"{text!r} needs a mount_path that begins with '/'")
    if "claim_name" in pairs and not _CLASS_NAME.fullmatch(pairs["claim_name"]):
        raise ValueError(
            f"claim_name={pairs['claim_name']} is no name of a claim: use lower-case letters, "
            "digits, '-' and '.'"
        )
    read_only = pairs.get("read_only", "false").lower()
    if read_only not in _TRUTHS:
        raise ValueError(f"read_only={read_only} in {text!r} is neither true nor false")
    return VolumeForm(
        mount_path=_mount_path(pairs["mount_path"], _TRUTHS[read_only]),
        claim_name=pairs.get("claim_name"),
        host_path=pairs.get("host_path"),
        host_type=pairs.get("type"),
        sub_path=pairs.get("sub_path"),
        read_only=_TRUTHS[read_only],
    )


def _mount_path(text: str, is_read_only: bool) -> str:
    """A mount path as it is compared: without a slash at its end."""
    path = "/" + text.strip("/")
    if path == "/":
        raise ValueError(f"mount_path={text} would hide the whole image: mount a folder in it")
    if ":" in path or ".." in path.split("/"):
        raise ValueError(f"mount_path={text} holds ':' or '..', which no mount path can have")
    if path == STATE_MOUNT and is_read_only:
        raise ValueError(f"mount_path={text} is where the master writes: leave read_only out")
    if path != STATE_MOUNT and f"{path}/".startswith(_OWN_FOLDER):
        raise ValueError(
            f"mount_path={text} is the project's own: mount below another folder than "
            f"{_OWN_FOLDER}, of which only {STATE_MOUNT} may be a volume"
        )
    return path


def check_image(text: str) -> str:
    """Check the reference of an image; the registry alone knows whether it is there.

    Raises:
        ValueError: No image can have that reference.
    """
    if text and not _IMAGE.fullmatch(text):
        raise ValueError(
            f"{text!r} is no reference of an image: write [REGISTRY/]NAME[:TAG][@DIGEST], the name "
            "in lower case and without spaces"
        )
    return text


def check_envs(envs: dict[str, str]) -> dict[str, str]:
    """Refuse variables that replicas are told by the platform, in whose place no other can stand.

    Raises:
        ValueError: A name is reserved.
    """
    for name in envs:
        if name.startswith(OWN_VARIABLES):
            raise ValueError(
                f"{name} is reserved: names that begin with {OWN_VARIABLES} are set by the "
                "platform: choose another name"
            )
    return envs


def check_node_selector(text: str) -> str:
    """Check `disktype=ssd,zone=a`.

    Raises:
        ValueError: A label has no name or value that a node can have.
    """
    parse_node_selector(text)
    return text


def parse_node_selector(text: str) -> dict[str, str]:
    """Read the labels that a node must have.

    Raises:
        ValueError: See `check_node_selector`.
    """
    labels = _pairs(text, text)
    for name, value in labels.items():
        if not _LABEL_NAME.fullmatch(name) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"{name}={value} in {text!r} is no label that a node can have")
    return labels


def check_tolerations(text: str) -> str:
    """Check `gpu=true:NoSchedule,spot:NoExecute`.

    Raises:
        ValueError: A toleration is none.
    """
    parse_tolerations(text)
    return text


def parse_tolerations(text: str) -> tuple[TolerationForm, ...]:
    """Read taints as kubectl writes them: `key[=value][:effect]`, `*` for every taint.

    Raises:
        ValueError: See `check_tolerations`.
    """
    forms = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        taint, colon, effect = item.partition(":")
        key, equals, value = taint.partition("=")
        if colon and effect not in _EFFECTS:
            raise ValueError(f"{item!r} has no effect of a taint: use {', '.join(_EFFECTS)}")
        if (key != "*" and not _LABEL_NAME.fullmatch(key)) or not _LABEL_VALUE.fullmatch(value):
            raise ValueError(f"{item!r} is not of the form key=value:effect, key:effect or key")
        if key == "*" and equals:
            raise ValueError(f"{item!r} tolerates every taint, so it can have no value")
        forms.append(
            TolerationForm(
                key=None if key == "*" else key,
                value=value if equals else None,
                effect=effect or None,
            )
        )
    return tuple(forms)


def check_object_names(text: str) -> str:
    """Check names of objects, as `a,b`.

    Raises:
        ValueError: No object can have one of the names.
    """
    for name in parse_object_names(text):
        if not _CLASS_NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of an object: use lower-case letters, digits, '-' and '.'"
            )
    return text


def read_secret_names(value: object) -> object:
    """Read `a,b`; what is a list already stays one."""
    return parse_object_names(value) if isinstance(value, str) else value


def check_secret_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of Secrets; each counts once.

    Raises:
        ValueError: No Secret can have one of them.
    """
    for name in names:
        # A list may hold what is no name by itself, such as `a,b`.
        if parse_object_names(name) != (name,):
            raise ValueError(f"{name!r} is no name of a Secret")
        check_object_names(name)
    return tuple(dict.fromkeys(names))


def parse_object_names(text: str) -> tuple[str, ...]:
    """Read `a,b`."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def check_queue_name(text: str) -> str:
    """Check the name of a queue, which pods have as a label.

    Raises:
        ValueError: No queue can have that name.
    """
    if not _LABEL_VALUE.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a queue: use at most {_MAX_LABEL_LENGTH} letters, digits, "
            "'-', '_' and '.'"
        )
    return text


def check_priority_class(text: str) -> str:
    """Check the name of a priority class.

    Raises:
        ValueError: No priority class can have that name.
    """
    if text and not _CLASS_NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no name of a priority class: use lower-case letters, digits, '-' and '.'"
        )
    return text


def number_to_text(value: object) -> object:
    """Let a job file hold the fraction 0.5 as a number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return value


def check_worker_priority(text: str) -> str:
    """Check the name of a priority class, or a fraction of high-priority workers.

    Raises:
        ValueError: The text is neither.
    """
    if not re.fullmatch(r"[-+]?\d*\.?\d+", text):
        return check_priority_class(text)
    if not 0 <= float(text) <= 1:
        raise ValueError(f"{text} is no fraction of the workers: write a number from 0 to 1")
    return text


def worker_priority(text: str, index: int, num_workers: int) -> str:
    """The priority class of one worker; empty for none.

    With a fraction f, ceil(f * num_workers) workers are high and the others low.
    """
    if not re.fullmatch(r"[-+]?\d*\.?\d+", text):
        return text
    num_high = math.ceil(float(text) * num_workers)
    return HIGH_PRIORITY if index < num_high else LOW_PRIORITY


def check_namespace(text: str) -> str:
    """Check the name of a namespace; empty for the one of the kubeconfig's context.

    Raises:
        ValueError: No namespace can have that name.
    """
    if text and (len(text) > _MAX_LABEL_LENGTH or not _DNS_LABEL.fullmatch(text)):
        raise ValueError(
            f"{text!r} is no name of a namespace: use at most {_MAX_LABEL_LENGTH} lower-case "
            "letters, digits and '-'"
        )
    return text


Resources = Annotated[str, AfterValidator(check_resources)]
Volumes = Annotated[str, AfterValidator(check_volumes)]
Image = Annotated[str, AfterValidator(check_image)]
PodEnvs = Annotated[Envs, AfterValidator(check_envs)]
PriorityClass = Annotated[str, AfterValidator(check_priority_class)]
QueueName = Annotated[str, AfterValidator(check_queue_name)]
WorkerPriority = Annotated[
    str,
    BeforeValidator(number_to_text, json_schema_input_type=str | float),
    AfterValidator(check_worker_priority),
]
ObjectNames = Annotated[str, AfterValidator(check_object_names)]
SecretNames = Annotated[
    tuple[str, ...],
    BeforeValidator(read_secret_names, json_schema_input_type=tuple[str, ...] | str),
    AfterValidator(check_secret_names),
]
NodeSelector = Annotated[str, AfterValidator(check_node_selector)]
Tolerations = Annotated[str, AfterValidator(check_tolerations)]
Namespace = Annotated[str, AfterValidator(check_namespace)]


# The settings that Kubernetes alone reads; elsewhere they are accepted, and said to be unused.


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
