"""Which cluster, as whom and in which namespace: kubectl's conventions, or a pod's own account."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from elastic.errors import PlatformError

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

KUBECONFIG_VARIABLE: Final = "KUBECONFIG"
DEFAULT_NAMESPACE: Final = "default"
# What the library stumbles into when a file has another shape than it expects.
_STUMBLES: Final = (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError)
_ACCOUNT_PATH: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server.

    Attributes:
        configuration: Of the client library: host, certificates, credentials and their renewal.
        namespace: What is meant where nobody names one.
        source: Where this comes from, for messages.
    """

    configuration: "Configuration"
    namespace: str
    source: str


RUN_HERE: Final = "add --platform local to run on this machine"
NAME_ONE: Final = "name a --kubeconfig"
"""What to do where no cluster is configured: by commands on jobs, and by those on clusters."""


def find_access(
    kubeconfig: str | None = None, context: str | None = None, remedy: str = RUN_HERE
) -> Access:
    """What kubectl would use: a kubeconfig, or the service account of the pod we run in.

    Args:
        kubeconfig: A file; by default the files of $KUBECONFIG, or ~/.kube/config.
        context: One of its contexts; by default the current one.
        remedy: What to do where nothing is configured.

    Raises:
        PlatformError: Nothing is configured, or what is cannot be used.
    """
    if kubeconfig is not None and not _is_file(_expanded(kubeconfig)):
        raise PlatformError(f"kubeconfig {kubeconfig} is not there: name another file")
    paths = kubeconfig_paths(kubeconfig)
    if paths:
        return _from_files(paths, context)
    if context is not None:
        raise PlatformError(f"context {context!r} is asked for, and there is no kubeconfig file")
    if _is_pod():
        return pod_access()
    raise PlatformError(
        "no Kubernetes cluster is configured (no file in $KUBECONFIG, no ~/.kube/config, no "
        f"service account): {remedy}"
    )


def is_configured() -> bool:
    """Whether anything here names a cluster, be it one that cannot be used."""
    return bool(os.environ.get(KUBECONFIG_VARIABLE) or kubeconfig_paths()) or _is_pod()


def _is_pod() -> bool:
    return (_ACCOUNT_PATH / "token").is_file()


def kubeconfig_paths(kubeconfig: str | None = None) -> list[Path]:
    """The kubeconfig files that are there, first one first."""
    listed = kubeconfig or os.environ.get(KUBECONFIG_VARIABLE, "")
    names = [name for name in listed.split(os.pathsep) if name] or ["~/.kube/config"]
    paths = [_expanded(name) for name in names]
    return [path for path in paths if _is_file(path)]


def _expanded(name: str) -> Path:
    return Path(os.path.expanduser(name))  # noqa: PTH111 (a home that nobody knows is no error here)


def _is_file(path: Path) -> bool:
    # The method of Path raises, before Python 3.14, where a name is too long.
    return os.path.isfile(path)  # noqa: PTH113


def pod_access() -> Access:
    """The service account of the pod that this process runs in.

    Raises:
        PlatformError: This is no pod, or it has no service account.
    """
    from kubernetes.client.configuration import Configuration
    from kubernetes.config import ConfigException, load_incluster_config

    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
        namespace = (_ACCOUNT_PATH / "namespace").read_text(encoding="utf-8").strip()
    except (ConfigException, OSError) as error:
        raise PlatformError(
            f"the service account of this pod cannot be used: {error}: "
            "set serviceAccountName and automountServiceAccountToken"
        ) from error
    return Access(configuration, namespace or DEFAULT_NAMESPACE, "the pod's service account")


def _from_files(paths: Sequence[Path], context: str | None) -> Access:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    source = os.pathsep.join(map(str, paths))
    configuration = Configuration()
    try:
        merged: Any = KubeConfigMerger(source).config
        loader = KubeConfigLoader(
            config_dict=merged, active_context=context or None, config_base_path=None
        )
        chosen = loader.current_context["context"]
        _check_names(merged, chosen)
        with _complaints() as complaints:
            loader.load_and_set(configuration)
    except (ConfigException, *_STUMBLES) as error:
        raise PlatformError(
            f"kubeconfig {source} cannot be used: {' '.join(str(error).split())}: mend it, or name "
            "another one with --kubeconfig or --context"
        ) from error
    if complaints:
        raise PlatformError(f"kubeconfig {source}: nobody is logged in: {'; '.join(complaints)}")
    return Access(configuration, chosen.get("namespace") or DEFAULT_NAMESPACE, source)


def _check_names(config: Any, context: dict[str, Any]) -> None:
    """Find what the library makes up: an anonymous user, and a server on this machine.

    Args:
        config: The library's own view of the merged files.
        context: The chosen one.
    """
    name = context.get("user")
    is_there = config.safe_get("users") and config["users"].get_with_name(name, safe=True)
    if name and not is_there:
        raise ValueError(f"there is no user {name!r}, whom the context names")
    cluster = config["clusters"].get_with_name(context["cluster"])["cluster"]
    if not cluster.safe_get("server"):
        raise ValueError(f"cluster {context['cluster']!r} has no server")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what the library only logs: a login program that fails would pass for no login."""
    complaints: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        complaints.append(record.getMessage())
        return False

    root = logging.getLogger()
    root.addFilter(collect)
    try:
        yield complaints
    finally:
        root.removeFilter(collect)
