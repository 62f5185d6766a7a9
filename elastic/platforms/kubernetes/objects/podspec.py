"""The parts of a pod that master and workers share: container, environment, volumes, security.

And how the pods of a job wait in a queue: of which group they are, and how they are called. Pure.
"""

from dataclasses import dataclass
from typing import Final

from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.hooks import Hook
from elastic.platforms.kubernetes.objects.queues import (
    QUEUE_LABEL,
    Gang,
    Part,
    QueueSystem,
    group_of,
    needs_own_name,
    pod_additions,
)
from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, MASTER, ROLES, Role
from elastic.spec.settings.cluster_forms import (
    TolerationForm,
    VolumeForm,
    parse_node_selector,
    parse_object_names,
    parse_resources,
    parse_tolerations,
    parse_volumes,
    state_volume,
)

WORKER_GRACE_S: Final = 30
"""As long as the fleet lets a worker take for its minibatch."""

MASTER_GRACE_S: Final = 10
"""A master that keeps nothing ends at once: it can at any moment."""

KEEPING_GRACE_S: Final = 60
"""For one that writes its newest version to a volume first."""

LOST_NODE_S: Final = 20
"""How long a replica stays bound to a node that was found not to answer, which takes Kubernetes
half a minute already. Its own 300 s would have the job wait for nothing.

When an API server was away for longer than a node may be silent, Kubernetes takes all nodes for
lost until they are heard again, for which a busy one has needed 12 s: no worker is to go by that.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """What all objects of one submission are made from.

    Attributes:
        spec: As the pods need it, see `manifests.spec_for_pods`.
        namespace: Where they are.
        submission_uid: Of this submission.
        image: What the pods run.
        hook: The user's edits, or None.
        resumed_uid: Of the submission whose cuts on the state volume this one goes on from; None
            for one that begins anew.
        owner: The resource that the job was made from; None for one that a user has submitted.
        queue_system: Of the queue that `spec.queue` names; None where it names none.
    """

    spec: JobSpec
    namespace: str
    submission_uid: str
    image: str
    hook: Hook | None = None
    resumed_uid: str | None = None
    owner: names.ResourceOwner | None = None
    queue_system: QueueSystem | None = None

    @property
    def name(self) -> str:
        return self.spec.job_name

    @property
    def labels(self) -> dict[str, str]:
        """Of all its objects."""
        labels = names.job_labels(self.name, self.submission_uid)
        return labels if self.owner is None else labels | {names.TRAIN_JOB_LABEL: self.owner.name}

    @property
    def state_of(self) -> str:
        """The submission that began what this one goes on with: the name of their common folder.

        Cuts of a job that was begun anew must never pass for those of the one before.
        """
        return self.resumed_uid or self.submission_uid


def container(job: Job, replica: ReplicaId, command: list[str]) -> Manifest:
    """The one container of a replica; what is in no table of roles is told by whoever makes it."""
    spec, role = job.spec, ROLES.get(replica.role)
    mounts = [
        {"name": "job", "mountPath": str(names.JOB_PATH), "readOnly": True},
        {"name": "token", "mountPath": str(names.TOKEN_PATH), "readOnly": True},
    ]
    mounts += [{"name": names.TMP_VOLUME, "mountPath": str(names.TMP_PATH)}] * _has_tmp(spec)
    if role is not None and role.keeps_state:
        mounts.append({"name": "state", "mountPath": str(names.STATE_PATH)})
        mounts += _kept_mounts(job)
    return {
        "name": names.CONTAINER,
        "image": job.image,
        "imagePullPolicy": spec.image_pull_policy,
        "command": command,
        "env": environment(job, replica),
        # What stands in `env` wins over the same name here.
        "envFrom": [{"secretRef": {"name": name}} for name in spec.env_secret],
        "ports": _metrics_ports(spec),
        "resources": {} if role is None else role_resources(spec, role),
        "volumeMounts": mounts + [_user_mount(i, v) for i, v in _numbered_volumes(spec)],
        "terminationMessagePath": str(names.TERMINATION_PATH),
        # A replica that could not say why it ends has its traceback in its log.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            # What is to last belongs on a volume, and what is not has /tmp.
            "readOnlyRootFilesystem": True,
        },
    }


def _metrics_ports(spec: JobSpec) -> list[Manifest]:
    """Declared for those who name the port, as a PodMonitor does."""
    port = spec.served_metrics_port
    return [{"name": names.METRICS_PORT_NAME, "containerPort": port}] if port else []


def scrape_annotations(spec: JobSpec) -> Manifest:
    """What a Prometheus without an operator finds pods by."""
    port = spec.served_metrics_port
    if not port:
        return {}
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port),
        "prometheus.io/path": "/metrics",
    }


def environment(job: Job, replica: ReplicaId) -> list[Manifest]:
    """The variables of a replica: defaults, the user's, and ours, which come last and win."""
    defaults = {
        # What a replica printed is in its log however it ends.
        "PYTHONUNBUFFERED": "1",
        # The user's number has no account, and libraries ask for its home and name; their caches
        # (~/.keras, ~/.cache, ~/.config/matplotlib, torch's kernels) go where they can be written.
        "HOME": str(names.TMP_PATH),
        "USER": "elastic",
    }
    own = {
        names.REPLICA_VARIABLE: f"{replica.name}-{replica.launch}",
        names.JOB_VARIABLE: job.name,
        names.NAMESPACE_VARIABLE: job.namespace,
        names.ADDRESS_VARIABLE: names.master_address(job.name, job.namespace),
    }
    fields = {
        names.POD_NAME_VARIABLE: "metadata.name",
        names.POD_UID_VARIABLE: "metadata.uid",
        names.POD_IP_VARIABLE: "status.podIP",
    }
    # Kubernetes would put the value of another variable in the place of $(NAME).
    given = {name: value.replace("$(", "$$(") for name, value in job.spec.envs.items()}
    plain = {k: v for k, v in (defaults | given).items() if k not in (own | fields)}
    cores = {"containerName": names.CONTAINER, "resource": "limits.cpu"}
    return [
        *({"name": name, "value": value} for name, value in (plain | own).items()),
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ),
        {"name": names.CORES_VARIABLE, "valueFrom": {"resourceFieldRef": cores}},
    ]


def role_resources(spec: JobSpec, role: Role) -> Manifest:
    """What the settings of a role have its container ask for and be limited to."""
    return resources(getattr(spec, role.resource_request), getattr(spec, role.resource_limit))


def resources(request: str, limit: str) -> Manifest:
    """Requests and limits; what has no limit of its own is limited to what it asks for."""
    requests = parse_resources(request)
    limits = parse_resources(limit) if limit else dict(requests)
    # Devices cannot be shared, so the two must be equal.
    limits |= {name: amount for name, amount in requests.items() if "/" in name}
    return {"requests": requests, "limits": limits}


def pod_spec(job: Job, main: Manifest) -> Manifest:
    """What a master's and a worker's pod have in common."""
    spec = job.spec
    pod: Manifest = {
        "containers": [main],
        # Variables for every Service of the namespace help nobody.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": names.USER_ID,
            "runAsGroup": names.USER_ID,
            "fsGroup": names.USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": _volumes(job),
        "tolerations": [_toleration(t) for t in parse_tolerations(spec.tolerations)],
    }
    if spec.node_selector:
        pod["nodeSelector"] = parse_node_selector(spec.node_selector)
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [
            {"name": name} for name in parse_object_names(spec.image_pull_secrets)
        ]
    return pod


def bearing_with_lost_node() -> list[Manifest]:
    """The tolerations of a pod that is made again elsewhere when its node does not answer."""
    return [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LOST_NODE_S,
        }
        for state in ("not-ready", "unreachable")
    ]


def tmp_volumes(spec: JobSpec) -> list[Manifest]:
    """Where a pod may write what it does not need again; none where the user has mounted one."""
    return [{"name": names.TMP_VOLUME, "emptyDir": {}}] * _has_tmp(spec)


def _has_tmp(spec: JobSpec) -> bool:
    mounted = {volume.mount_path for volume in parse_volumes(spec.volume)}
    return str(names.TMP_PATH) not in mounted


def _volumes(job: Job) -> list[Manifest]:
    keys = [names.SPEC_KEY, names.SUBMISSION_KEY]
    if job.hook is not None:
        keys.append(job.hook.key)
    record = {
        "name": names.record_name(job.name),
        # Only what never changes: what users ask comes through the API server.
        "items": [{"key": key, "path": key} for key in keys],
    }
    token = {"secretName": names.token_name(job.name), "defaultMode": 0o440}
    return [
        {"name": "job", "configMap": record},
        {"name": "token", "secret": token},
        *tmp_volumes(job.spec),
        *(_volume(f"user-{i}", v) for i, v in _numbered_volumes(job.spec)),
    ]


def keeps_versions(spec: JobSpec) -> bool:
    """Whether a job that loses its master's pod has something that it can be resumed from."""
    return bool(spec.checkpoint_dir) or state_volume(spec.volume) is not None


def state_volumes(job: Job) -> list[Manifest]:
    """The master's own: one that lives as long as its pod, and the user's that outlives it.

    Workers get none of it: a claim may be such that only one pod can mount it.
    """
    kept = state_volume(job.spec.volume)
    volumes: list[Manifest] = [{"name": "state", "emptyDir": {}}]
    return volumes if kept is None else [*volumes, _volume("kept-state", kept)]


def _kept_mounts(job: Job) -> list[Manifest]:
    """What is kept, below a folder of the job's own; several jobs may share a volume."""
    kept = state_volume(job.spec.volume)
    if kept is None:
        return []
    parts = [kept.sub_path, job.name, job.state_of]
    folder = "/".join(part for part in parts if part)
    return [
        {
            "name": "kept-state",
            "mountPath": str(names.STATE_PATH / name),
            "subPath": f"{folder}/{name}",
        }
        for name in names.KEPT_FOLDERS
    ]


def _numbered_volumes(spec: JobSpec) -> list[tuple[int, VolumeForm]]:
    return [(i, v) for i, v in enumerate(parse_volumes(spec.volume)) if not v.is_for_state]


def _volume(name: str, volume: VolumeForm) -> Manifest:
    if volume.claim_name is not None:
        return {"name": name, "persistentVolumeClaim": {"claimName": volume.claim_name}}
    host_path = {"path": volume.host_path, "type": volume.host_type or ""}
    return {"name": name, "hostPath": host_path}


def _user_mount(number: int, volume: VolumeForm) -> Manifest:
    mount: Manifest = {"name": f"user-{number}", "mountPath": volume.mount_path}
    if volume.sub_path is not None:
        mount["subPath"] = volume.sub_path
    if volume.read_only:
        mount["readOnly"] = True
    return mount


def _toleration(form: TolerationForm) -> Manifest:
    toleration: Manifest = {"operator": "Exists" if form.value is None else "Equal"}
    if form.key is not None:
        toleration["key"] = form.key
    if form.value is not None:
        toleration["value"] = form.value
    if form.effect is not None:
        toleration["effect"] = form.effect
    return toleration


def gang_of(job: Job) -> Gang | None:
    """The job as its queue sees it; None where it waits in none.

    Its group is another one with each submission: Kueue remembers by its name that one is over.
    """
    if job.queue_system is None:
        return None
    least = sum(role.limits(job.spec).minimum for role in FLEET)
    return Gang(names.group_name(job.name, job.submission_uid), least, job.spec.queue)


def queue_labels(job: Job) -> dict[str, str]:
    """What tells people, and the queue, in which queue a job is."""
    return {} if job.queue_system is None else {QUEUE_LABEL: job.spec.queue}


def job_group(job: Job) -> tuple[Resource, Manifest] | None:
    """The object that has to be there before the first worker; None where there is none."""
    gang = gang_of(job)
    if gang is None or job.queue_system is None:
        return None
    made = group_of(job.queue_system, gang)
    if made is None:
        return None
    resource, manifest = made
    labels = job.labels | manifest["metadata"]["labels"]
    metadata = {**manifest["metadata"], "namespace": job.namespace, "labels": labels}
    return resource, {**manifest, "metadata": metadata}


def pod_name(job: Job, replica: ReplicaId) -> str:
    """The pod of a launch; those of one index have the same name wherever a queue lets them."""
    name = names.replica_pod_name(job.name, replica.role, replica.index)
    system = job.queue_system
    has_own = system is not None and needs_own_name(system, _part(job, replica))
    return f"{name}-{replica.launch}" if has_own else name


def queued(job: Job, replica: ReplicaId, pod: Manifest) -> Manifest:
    """The pod of a launch as it waits in the job's queue; the same where there is none."""
    gang = gang_of(job)
    if gang is None or job.queue_system is None:
        return pod
    new = pod_additions(job.queue_system, gang, _part(job, replica)).to(pod)
    if job.queue_system is QueueSystem.KUEUE:
        # What a pod that is in a queue controls counts as admitted with it, and waits for nothing.
        for owner in new["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod":
                owner["controller"] = False
    return new


def _part(job: Job, replica: ReplicaId) -> Part:
    if replica.role == MASTER:
        return Part.MASTER
    least = ROLES[replica.role].limits(job.spec).minimum
    return Part.MINIMUM if replica.index < least else Part.BEYOND
