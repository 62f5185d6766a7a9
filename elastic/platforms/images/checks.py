"""What `elastic doctor` looks at of Docker engines and registries. Nothing is built or pushed."""

import ipaddress
import urllib.error
import urllib.request
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from typing import Final

from elastic.errors import PlatformError
from elastic.platforms.images.engine import DockerEngine
from elastic.platforms.images.request import DOCKER_HUB, ImageRequest, registry_host
from elastic.platforms.registry import Check, Outcome

TIMEOUT_S: Final = 5.0
_DOCKER_HUB_API: Final = "registry-1.docker.io"
"""Where Docker Hub answers as a registry; at its own name is a web site."""


def check_engine(docker_base_url: str) -> Check:
    """Whether images can be built here; a job with a ready image needs no engine."""
    request = ImageRequest(Path(), docker_base_url=docker_base_url)
    try:
        with closing(DockerEngine.connect(request)):
            return Check("Docker engine", Outcome.OK, "images can be built")
    except PlatformError as error:
        what, _, fix = str(error).partition("\n")
        return Check("Docker engine", Outcome.WARNING, what, fix)


def check_registry(repository: str) -> Check:
    """Whether the registry of a repository answers, and whether it wants a login."""
    host = registry_host(repository)
    address = _DOCKER_HUB_API if host == DOCKER_HUB else host
    url = f"{'http' if _is_loopback(host) else 'https'}://{address}/v2/"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):  # noqa: S310 - a scheme of ours
            return Check("registry", Outcome.OK, f"{host} answers")
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED:
            text = f"{host} answers and wants to know who you are"
            login = f"unless you have done so: docker login {host}"
            return Check("registry", Outcome.OK, text, login)
        text = f"{host} answers with {error.code} {error.reason}, so it may be no registry"
    except (OSError, ValueError) as error:
        text = f"{host} does not answer: {getattr(error, 'reason', error)}"
    fix = "correct --docker_image_repository (HOST/PATH), or start the registry"
    return Check("registry", Outcome.FAILURE, text, fix)


def _is_loopback(host: str) -> bool:
    """Whether Docker talks to it without TLS, as to every registry of the same machine."""
    name = host.rpartition(":")[0] or host
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
