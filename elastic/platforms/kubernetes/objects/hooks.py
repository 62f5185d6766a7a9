"""The user's `cluster_spec`: Python that edits pods and Services, or YAML merged into the pods.

The laptop reads the file once and ships its text in the job's record, so the master, which makes
the worker pods, applies the very same hook. It runs where the user's model runs anyway: nothing
of it is executed anywhere else.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.resources import Manifest
from elastic.platforms.kubernetes.objects import names
from elastic.spec.names import nearest
from elastic.spec.values.paths import expand_user

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
