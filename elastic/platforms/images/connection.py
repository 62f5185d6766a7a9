"""Reaching a Docker engine: which one, with whose certificates, and what to do where there is none.

Follows the conventions of the `docker` command, so that whoever can use it can use elastic.
"""

import os
import socket
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

from elastic.errors import PlatformError
from elastic.platforms.images.request import ImageRequest
from elastic.spec.job import JobSpec

CONNECT_TIMEOUT_S: Final = 10
"""An engine that answers at all answers at once."""
REPLY_TIMEOUT_S: Final = 600
"""A registry may take minutes to commit a large layer, and the engine is silent for so long."""

_DEFAULT_URL: Final = JobSpec.model_fields["docker_base_url"].default


def open_client(request: ImageRequest) -> tuple[Any, str]:
    """A client of the engine that a request names, which has answered, and its address.

    An address other than the default wins; then `DOCKER_HOST` with its companions and the current
    Docker context decide.

    Raises:
        PlatformError: There is no engine, or it cannot be used from here.
    """
    # The SDK comes only with the first image.
    from docker.errors import DockerException

    url = request.docker_base_url
    try:
        url, tls = _address(request)
        _knock(url)
        return _client(url, tls, _version(url, tls), REPLY_TIMEOUT_S), url
    except (DockerException, OSError) as error:
        raise _no_engine(url, str(error)) from error


def _version(url: str, tls: Any) -> str:
    """The newest version of the API that an engine speaks."""
    from docker.constants import MINIMUM_DOCKER_API_VERSION
    from docker.errors import DockerException

    with closing(_client(url, tls, MINIMUM_DOCKER_API_VERSION, CONNECT_TIMEOUT_S)) as probe:
        version = probe.version(api_version=False).get("ApiVersion")
    if not version:
        raise DockerException("what answers there is no Docker engine")
    return str(version)


def _knock(url: str) -> None:
    """Try a socket of this machine, whose errors the SDK would hide behind its own.

    Raises:
        OSError: Nobody answers there, or we may not ask.
    """
    scheme, _, path = url.partition("://")
    if scheme != "unix":
        return
    with socket.socket(socket.AF_UNIX) as knock:
        # `unix://var/run/docker.sock` is how ElasticDL and the SDK write the usual place.
        knock.connect(f"/{path.lstrip('/')}")


def _client(url: str, tls: Any, version: str, timeout_s: int) -> Any:
    """A client that has not talked to its engine yet."""
    from docker import APIClient

    client = APIClient(base_url=url, tls=tls, version=version, timeout=timeout_s)
    if tls:
        # REQUESTS_CA_BUNDLE would take the place of the authority that was named for the engine.
        client.trust_env = False
    return client


def _address(request: ImageRequest) -> tuple[str, Any]:
    """Address of the engine, and its TLS configuration or False."""
    from docker.context import ContextAPI
    from docker.context.config import get_current_context_name
    from docker.errors import DockerException
    from docker.tls import TLSConfig
    from docker.utils import kwargs_from_env

    given = request.docker_base_url
    if given not in ("", _DEFAULT_URL):
        return given, _tls_of(request, TLSConfig)
    if os.environ.get("DOCKER_HOST"):
        found = kwargs_from_env()
        return found["base_url"], found.get("tls", False)
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    context = ContextAPI.get_context(name)
    if context is None:
        raise DockerException(f"there is no Docker context {name!r}")
    if name == "default" or not context.Host:
        return _DEFAULT_URL, False
    # The SDK gives a context's socket in its own spelling.
    return context.Host.removeprefix("http+"), context.TLSConfig or False


def _tls_of(request: ImageRequest, config: Callable[..., Any]) -> Any:
    if not (request.docker_tlscert or request.docker_tlskey or request.docker_tlscacert):
        return False
    certificate = (request.docker_tlscert, request.docker_tlskey)
    return config(
        client_cert=certificate if any(certificate) else None,
        ca_cert=request.docker_tlscacert or None,
        # The SDK checks no engine's identity unless told to.
        verify=True,
    )


def _no_engine(url: str, cause: str) -> PlatformError:
    text = cause.lower()
    if "permission denied" in text:
        advice = "ask to become a member of its group (usually docker)"
    elif "certificate" in text or "ssl" in text or "tls" in text:
        advice = "check --docker_tlscacert, --docker_tlscert and --docker_tlskey"
    else:
        advice = "start it, or name another with --docker_base_url or DOCKER_HOST"
    return PlatformError(
        f"no Docker engine can be used at {url}: {cause}\n{advice}; "
        "a ready image runs without an engine: --image"
    )
