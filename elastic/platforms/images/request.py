"""What image is wanted, and what it will be called.

The framework that it must have for its model is read from the model's imports.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec
from elastic.spec.model_def.contract import find_module
from elastic.spec.values.packages import DISTRIBUTION
from elastic.spec.values.paths import is_dir

_MODULE_OF_PACKAGE: Final = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow"}
"""Keras computes with TensorFlow here, so that is what has to be there."""

IMAGE_NAME: Final = "elastic"
"""Last part of the names of all images that are made for jobs."""

DOCKERFILE_NAME: Final = "elastic.Dockerfile"
"""In a model_zoo: the user's own recipe. Not `Dockerfile`, which may serve another purpose."""

TEMPLATE_PATH: Final = Path(__file__).with_name("model_zoo.Dockerfile")
DOCKER_HUB: Final = "docker.io"
"""What `docker login` calls the registry of names that begin with none."""

# Lower case, as registries want it; a host may have upper case and a port.
_REPOSITORY: Final = re.compile(
    r"([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"|[a-zA-Z0-9.-]+:[0-9]+"
)


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework by the module that shows it is there, and what brings it.

    Attributes:
        module: Its top module, which is also the name of elastic's extra for it.
        requirement: The package to install where the module is missing.
    """

    module: str
    requirement: str


def framework_of(model_zoo: Path, model_def: str) -> Framework | None:
    """The one framework that the module of a model imports itself, or None.

    Raises:
        ModelDefError: There is no such module.
    """
    found = _used_in(find_module(model_zoo, model_def).path)
    return _framework(found.pop()) if len(found) == 1 else None


def frameworks_in(files: Iterable[Path]) -> list[Framework]:
    """All that modules among some files import."""
    found: set[str] = set()
    for path in files:
        if path.suffix == ".py":
            found |= _used_in(path)
    return [_framework(module) for module in sorted(found)]


def _framework(module: str) -> Framework:
    return Framework(module, requirement_of(module))


def _used_in(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes() if path.is_file() else b"")
    except (SyntaxError, ValueError, OSError):
        # Whoever checks or packs the module tells it; an image can do without.
        return set()
    packages = set(_imports(tree)) & _MODULE_OF_PACKAGE.keys()
    return {_MODULE_OF_PACKAGE[package] for package in packages}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.partition(".")[0]


def requirement_of(extra: str) -> str:
    """What elastic's own extra asks for; without a range where elastic is not installed."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if marker.replace('"', "'").strip() == f"extra == '{extra}'":
            return requirement.strip()
    return extra


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """The image of one model_zoo.

    Attributes:
        model_zoo: Folder of this machine.
        image_base: Image that the model_zoo is added to; empty takes the recipe's own.
        repository: Where the image is pushed to; empty pushes nothing.
        extra_pypi_index: Further package index for pip; empty for none.
        docker_base_url: Address of the Docker engine.
        docker_tlscacert: Certificate of the authority that signed the engine's; empty trusts the
            system's authorities.
        docker_tlscert: This client's certificate for the engine, or empty.
        docker_tlskey: The key of `docker_tlscert`.
        pull_policy: When nodes pull the image: `Always`, `IfNotPresent` or `Never`.
        framework: Installed where neither the base nor a requirement has brought it.
        extras: Requirements that this job has besides those of elastic itself.
    """

    model_zoo: Path
    image_base: str = ""
    repository: str = ""
    extra_pypi_index: str = ""
    docker_base_url: str = ""
    docker_tlscacert: str = ""
    docker_tlscert: str = ""
    docker_tlskey: str = ""
    pull_policy: str = "IfNotPresent"
    framework: Framework | None = None
    extras: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: JobSpec) -> "ImageRequest":
        """The image that the pods of a job run.

        Raises:
            ModelDefError: The model_zoo has no such module.
        """
        return cls(
            model_zoo=spec.model_zoo,
            image_base=spec.image_base,
            repository=spec.docker_image_repository,
            extra_pypi_index=spec.extra_pypi_index,
            docker_base_url=spec.docker_base_url,
            docker_tlscacert=spec.docker_tlscacert,
            docker_tlscert=spec.docker_tlscert,
            docker_tlskey=spec.docker_tlskey,
            pull_policy=spec.image_pull_policy,
            framework=framework_of(spec.model_zoo, spec.model_def),
            extras=(requirement_of("tensorboard"),) if spec.tensorboard_log_dir else (),
        )

    @property
    def args(self) -> dict[str, str]:
        """The arguments of the recipe; what is empty is left to its defaults."""
        named = {"IMAGE_BASE": self.image_base, "EXTRA_PYPI_INDEX": self.extra_pypi_index}
        if self.framework is not None:
            named["FRAMEWORK"] = self.framework.module
            named["FRAMEWORK_REQUIREMENT"] = self.framework.requirement
        return {name: value for name, value in named.items() if value}

    def reference(self, tag: str) -> str:
        """`REPOSITORY/elastic:TAG`, or `elastic:TAG` where nothing is pushed."""
        return f"{self.repository.rstrip('/')}/{IMAGE_NAME}:{tag}".lstrip("/")

    def check(self) -> None:
        """Refuse what could be built but would not run.

        Raises:
            JobSpecError: A setting has no usable meaning.
        """
        if not is_dir(self.model_zoo):
            raise JobSpecError(
                f"--model_zoo {self.model_zoo} is no folder: name the one that holds the model"
            )
        if self.repository and not _REPOSITORY.fullmatch(self.repository.rstrip("/")):
            raise JobSpecError(
                f"--docker_image_repository is {self.repository!r}: write HOST/PATH without a "
                "scheme and a tag, such as registry.example.com/team"
            )
        if self.pull_policy == "Always" and not self.repository:
            raise JobSpecError(
                "no --docker_image_repository is given, so the image stays in the Docker engine, "
                "and --image_pull_policy=Always would have nodes pull it from a registry: name a "
                "repository, or where the nodes use this very engine --image_pull_policy=Never"
            )


def registry_host(repository: str) -> str:
    """The registry that images of a repository are in, by Docker's rules."""
    first = repository.partition("/")[0]
    is_host = "." in first or ":" in first or first == "localhost" or first != first.lower()
    return first if is_host and first != f"index.{DOCKER_HUB}" else DOCKER_HUB
