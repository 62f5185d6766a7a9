"""The pods of a job: what master and workers share, and how the user's `cluster_spec` edits them.

A `cluster_spec` is Python that edits pods and Services, or YAML merged into the pods. The laptop
reads the file once and ships its text in the job's record, so the master, which makes the worker
pods, applies the very same hook. It runs where the user's model runs anyway: nothing of it is
executed anywhere else.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from elastic.errors import JobSpecError
from elastic.platforms.base import ReplicaId
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.names import (
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
from elastic.spec.settings.cluster import (
    TolerationForm,
    VolumeForm,
    parse_node_selector,
    parse_object_names,
    parse_resources,
    parse_tolerations,
    parse_volumes,
    state_volume,
)
from elastic.spec.values import expand_user, nearest

_MERGE_KEYS: Final = ("name", "mountPath", "containerPort", "ip")
"""By which items of a list are recognised, as Kubernetes does in its own merges."""


@dataclass(frozen=True, slots=True)
class Hook:
    """What a user does to the pods and the Service of a job.

    Attributes:
        key: Of the record, under which the text is shipped.
        text: The file's content.
    """

    key: str
    text: str

    def edit_pod(self, pod: Manifest) -> Manifest:
        """The pod as the user wants it; what the job lives by is put back.

        Raises:
            JobSpecError: The file cannot be used, or it removed what a pod needs.
        """
        edited = _edit(self, "with_pod", "V1Pod", pod)
        return _restore(self, pod, edited)

    def edit_service(self, service: Manifest) -> Manifest:
        """The Service as the user wants it; YAML speaks of pods only.

        Raises:
            JobSpecError: The file cannot be used.
        """
        if not self.key.endswith(".py"):
            return service
        edited = _edit(self, "with_service", "V1Service", service)
        for field in ("apiVersion", "kind"):
            edited[field] = service[field]
        metadata = _mapping(self, "metadata of the Service", edited.get("metadata"))
        edited["metadata"] = {**metadata, "name": service["metadata"]["name"]}
        return edited


def read_hook(path: str) -> Hook | None:
    """Read the file that the setting `cluster_spec` names; None where it names none.

    Raises:
        JobSpecError: The file cannot be read, or is neither Python nor YAML.
    """
    if not path:
        return None
    suffix = {".yml": ".yaml"}.get(Path(path).suffix, Path(path).suffix)
    if suffix not in names.HOOK_KEYS:
        raise JobSpecError(f"cluster_spec={path} is neither a .py nor a .yaml file")
    try:
        text = expand_user(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise JobSpecError(f"cluster_spec={path} cannot be read: {error}") from error
    hook = Hook(names.HOOK_KEYS[suffix], text)
    _load(hook)
    return hook


def merge(base: Any, change: Any) -> Any:
    """Put a change over a value: mappings are merged, lists by the names of their items."""
    if isinstance(base, dict) and isinstance(change, dict):
        merged = dict(base)
        for key, value in change.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(base[key], value) if key in base else value
        return merged
    if isinstance(base, list) and isinstance(change, list):
        return _merge_lists(base, change)
    return change


def _merge_lists(base: list[Any], change: list[Any]) -> list[Any]:
    merged = list(base)
    for item in change:
        key = next((k for k in _MERGE_KEYS if isinstance(item, dict) and k in item), None)
        # A path may be mounted from a volume that others mount too, so the path is the identity.
        if isinstance(item, dict) and "mountPath" in item:
            key = "mountPath"
        position = next(
            (
                i
                for i, old in enumerate(merged)
                if key is not None and isinstance(old, dict) and old.get(key) == item[key]
            ),
            None,
        )
        if position is None:
            merged.append(item)
        else:
            merged[position] = merge(merged[position], item)
    return merged


def _load(hook: Hook) -> Any:
    """The `cluster` object of a Python file, or the mapping of a YAML file."""
    if hook.key.endswith(".py"):
        scope: dict[str, Any] = {"__name__": "cluster_spec", "__file__": hook.key}
        try:
            exec(compile(hook.text, hook.key, "exec"), scope)  # noqa: S102 - the user's own code
        except (Exception, SystemExit) as error:
            raise JobSpecError(
                f"cluster_spec cannot be loaded: {type(error).__name__}: {error}"
            ) from error
        if "cluster" not in scope:
            raise JobSpecError("cluster_spec has no object named 'cluster': define one")
        return scope["cluster"]
    try:
        content = yaml.safe_load(hook.text)
    except yaml.YAMLError as error:
        raise JobSpecError(f"cluster_spec is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not set(content) <= {"metadata", "spec"}:
        raise JobSpecError(
            "cluster_spec must be a mapping with 'metadata' and 'spec', which are merged into "
            "those of the pods"
        )
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise JobSpecError(
            f"cluster_spec holds a value that no pod can have: {error}: put dates and the like in "
            "quotes"
        ) from error
    return content


def _edit(hook: Hook, method_name: str, model: str, manifest: Manifest) -> Manifest:
    loaded = _load(hook)
    if not hook.key.endswith(".py"):
        merged: Manifest = merge(copy.deepcopy(manifest), loaded)
        return merged
    method: Callable[[Any], Any] | None = getattr(loaded, method_name, None)
    if method is None:
        return manifest
    # The client's own objects, as cluster specs of ElasticDL expect them.
    from kubernetes.client import ApiClient

    api = ApiClient()
    given = api.deserialize(json.dumps(manifest), model, "application/json")
    try:
        returned = method(given)
        # Editing in place and returning nothing is as good.
        edited = api.sanitize_for_serialization(given if returned is None else returned)
    except (Exception, SystemExit) as error:
        raise JobSpecError(
            f"cluster.{method_name} of cluster_spec failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(edited, dict):
        raise JobSpecError(f"cluster.{method_name} returned a {type(edited).__name__}, no {model}")
    return edited


def _restore(hook: Hook, pod: Manifest, edited: Manifest) -> Manifest:
    """Put back what the job lives by: names, labels, owner, command, volumes."""
    result = copy.deepcopy(edited)
    metadata, old = _mapping(hook, "metadata", result.get("metadata")), pod["metadata"]
    result["metadata"] = metadata
    metadata["name"] = old["name"]
    labels = _mapping(hook, "metadata.labels", metadata.get("labels"))
    metadata["labels"] = labels | old["labels"]
    if "ownerReferences" in old:
        metadata["ownerReferences"] = old["ownerReferences"]
    result["apiVersion"], result["kind"] = pod["apiVersion"], pod["kind"]
    spec = result["spec"] = _mapping(hook, "spec", result.get("spec"))
    spec["restartPolicy"] = pod["spec"]["restartPolicy"]
    items = {
        field: _mappings(hook, f"spec.{field}", spec.get(field))
        for field in ("containers", "initContainers", "volumes")
    }
    ours = pod["spec"]["containers"][0]
    own = next((c for c in items["containers"] if c.get("name") == names.CONTAINER), None)
    if own is None:
        raise JobSpecError(
            f"cluster_spec ({hook.key}) has removed the container {names.CONTAINER!r}: "
            "edit it instead"
        )
    for field in ("command", "terminationMessagePath", "terminationMessagePolicy"):
        own[field] = ours[field]
    own_env = [entry for entry in ours["env"] if entry["name"].startswith(names.OWN_PREFIX)]
    env = _mappings(hook, f"env of the container {names.CONTAINER!r}", own.get("env"))
    own["env"] = _impose(env, own_env, "name")
    mounts = _mappings(
        hook, f"volumeMounts of the container {names.CONTAINER!r}", own.get("volumeMounts")
    )
    own["volumeMounts"] = _impose(_one_tmp(mounts), _needed(ours["volumeMounts"]), "mountPath")
    spec["volumes"] = _impose(items["volumes"], _needed(pod["spec"]["volumes"]), "name")
    return result


def _needed(items: list[Manifest]) -> list[Manifest]:
    """Volumes or mounts that the job lives by; what /tmp is made of is the user's to say."""
    return [item for item in items if item["name"] != names.TMP_VOLUME]


def _one_tmp(mounts: list[Manifest]) -> list[Manifest]:
    """The mounts without our /tmp, where there is another one."""
    at_tmp = [mount for mount in mounts if mount.get("mountPath") == str(names.TMP_PATH)]
    if all(mount.get("name") == names.TMP_VOLUME for mount in at_tmp):
        return mounts
    return [mount for mount in mounts if mount.get("name") != names.TMP_VOLUME]


def _impose(theirs: list[Manifest], ours: list[Manifest], key: str) -> list[Manifest]:
    """Their items, but for those that stand where one of ours belongs; ours come last."""
    taken = [item[key] for item in ours]
    return [item for item in theirs if item.get(key) not in taken] + ours


def _mapping(hook: Hook, where: str, value: object) -> Manifest:
    """A field that must be a mapping; an empty one where it is missing."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _misshapen(hook, where, value, "a mapping, such as {name: value}")
    return value


def _mappings(hook: Hook, where: str, value: object) -> list[Manifest]:
    """A field that must be a list of mappings; an empty one where it is missing."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _misshapen(hook, where, value, "a list, whose items begin with a dash")
    for item in value:
        if not isinstance(item, dict):
            raise _misshapen(hook, f"an item of {where}", item, "a mapping, such as {name: value}")
    return value


def _misshapen(hook: Hook, where: str, value: object, wanted: str) -> JobSpecError:
    kinds: dict[type, str] = {dict: "a mapping", list: "a list"}
    found = kinds.get(type(value), repr(value))
    return JobSpecError(f"cluster_spec ({hook.key}): {where} is {found}: write {wanted}")


def check_fields(source: str, sent: Manifest, taken: Manifest) -> None:
    """Refuse a field of the pod's metadata, spec and containers that nobody knows.

    Args:
        source: Where the fields come from, for the message.
        sent: The pod, as the API server was asked for it.
        taken: As the API server took it. What it has kept it knows, of whatever version it is.

    Raises:
        JobSpecError: With the field, and what may be meant.
    """
    # Only for jobs that have a cluster_spec: it takes a second to import.
    from kubernetes.client.models import V1Container, V1ObjectMeta, V1PodSpec

    _check(source, "metadata", sent["metadata"], taken["metadata"], V1ObjectMeta.attribute_map)
    _check(source, "spec", sent["spec"], taken["spec"], V1PodSpec.attribute_map)
    for field in ("initContainers", "containers"):
        there = {container["name"]: container for container in taken["spec"].get(field) or []}
        for container in sent["spec"].get(field) or []:
            name = container.get("name", "")
            where = f"container {name!r} of spec.{field}"
            _check(source, where, container, there.get(name, {}), V1Container.attribute_map)


def _check(
    source: str, where: str, sent: Manifest, taken: Manifest, attributes: Mapping[str, str]
) -> None:
    for field in sent:
        if field in attributes.values() or field in taken:
            continue
        near = nearest(field, attributes.values())
        advice = f"did you mean {near}?" if near else "correct it, or leave it out"
        raise JobSpecError(f"cluster_spec ({source}): {where} has no field {field!r}: {advice}")


# The parts of a pod that master and workers share: container, environment, volumes, security.
#
# And how the pods of a job wait in a queue: of which group they are, and how they are called. Pure.


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
