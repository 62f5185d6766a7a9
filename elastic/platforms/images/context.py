"""What image is wanted, what it will be called, and what it is built from.

The framework that it must have for its model is read from the model's imports.
"""

import ast
import base64
import hashlib
import io
import json
import os
import re
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import IO, Final

import elastic
from elastic.errors import JobSpecError, PlatformError
from elastic.spec.job import FOLDER_FILE, JobSpec
from elastic.spec.model_def import find_module
from elastic.spec.values import DISTRIBUTION, install_this, is_dir

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


# What an image is built from, packed so that equal content makes equal bytes.
#
# That is a Dockerfile, a model_zoo, and the elastic that runs here as a wheel: pods run the same
# code that checked and sent the job. It is written from the package's files, so that it works from
# a checkout and from an installation alike and needs neither a build tool nor a network.
#
# Times, owners and the modes of this machine are left out: they differ between two checkouts of one
# model_zoo, and a file that only its owner may read could not be read in a pod.


_TAG_LENGTH: Final = 20
_INSTRUCTION: Final = re.compile(r"^\s*(ARG|FROM)\s+(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
# A directive, which only other directives may stand before.
_ESCAPE: Final = re.compile(
    r"(?:#[ \t]*\w+[ \t]*=.*\n)*?#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_MAY_HOLD_DOCUMENTS: Final = re.compile(r"\s*(?:ONBUILD\s+)*(?:RUN|COPY|ADD)\s", re.IGNORECASE)
# A word of the shell, which quotes and backslashes hold together.
_WORD: Final = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_HERE_DOCUMENT: Final = re.compile(r"\d*<<(-?)([^<]+)")
_QUOTING: Final = re.compile(r"""["']|\\(?=.)""")
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")

_REQUIREMENTS: Final = """\
# Python packages that the models need beyond those of the base image, one per line.
"""

_DOCKERIGNORE: Final = """\
# What shall not become part of the image, such as data and checkpoints.
*.npz
*.ckpt
data/
"""

_FILE_NAME: Final = DISTRIBUTION.replace("-", "_")
# The earliest moment a zip file can name; a fixed one makes equal files of equal code.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_WHEEL: Final = """\
Wheel-Version: 1.0
Generator: elastic
Root-Is-Purelib: true
Tag: py3-none-any
"""

ALWAYS_IGNORED: Final = (
    "**/__pycache__",
    "**/*.pyc",
    "**/.git",
    "**/.venv",
    "**/.DS_Store",
    "**/.#*",
    "**/.ipynb_checkpoints",
    "**/.pytest_cache",
    "**/.mypy_cache",
    ".dockerignore",
    FOLDER_FILE,
    DOCKERFILE_NAME,
)
"""What no model needs and what changes without an edit; a `!pattern` in .dockerignore brings it
back."""

LARGE_BYTES: Final = 100 * 1024 * 1024
"""A model_zoo larger than this is told, with its largest file: it slows down every submission."""

_REQUIREMENT_LISTS: Final = ("requirements*.txt", "constraints*.txt")

_OWN_NAME: Final = re.compile(r"^\s*elastic([-_.]jobs)?\s*([\[<>=!~;@#]|$)", re.I | re.M)

_OR_IGNORE: Final = ", or name it in .dockerignore"

# The earliest time that every archive format can hold.
_MTIME_S: Final = 315532800


def dockerfile_of(model_zoo: Path) -> str:
    """The model_zoo's own recipe where it has one, else the one that elastic brings.

    Raises:
        JobSpecError: It cannot be read.
    """
    own = model_zoo / DOCKERFILE_NAME
    try:
        return (own if own.is_file() else TEMPLATE_PATH).read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(own, error) from error
    except UnicodeDecodeError as error:
        raise JobSpecError(f"{own} is not UTF-8: {error}: save it as UTF-8") from error


def base_images(dockerfile: str, args: Mapping[str, str]) -> list[str]:
    """The images that a Dockerfile begins from, in order, `scratch` and its own stages left out.

    Args:
        args: Values that replace the defaults of ARG instructions.

    Raises:
        JobSpecError: A FROM names nothing once its variables have their values.
    """
    values: dict[str, str] = {}
    stages: set[str] = set()
    bases: list[str] = []
    for kind, text in _INSTRUCTION.findall(_joined(dockerfile)):
        if kind.upper() == "ARG":
            # Only arguments before the first FROM reach a FROM.
            if not bases and not stages:
                name, _, default = text.partition("=")
                values[name] = args.get(name, _expanded(default, values))
            continue
        words = [word for word in text.split() if not word.startswith("--")]
        image = _expanded(words[0], values) if words else ""
        if not image:
            raise JobSpecError(f"FROM {text} in {DOCKERFILE_NAME} names no image: give its ARG one")
        if image not in (*stages, "scratch", *bases):
            bases.append(image)
        stages.add(words[-1] if len(words) == 3 else image)
    return bases


def _joined(dockerfile: str) -> str:
    """Every instruction on one line, however many it was written on, and nothing else."""
    found = _ESCAPE.match(dockerfile)
    escape = re.escape(found[1] if found else "\\")
    goes_on = re.compile(rf"(?<!{escape}){escape}[ \t]*$")
    instructions, begun = [], ""
    lines = iter(dockerfile.split("\n"))
    for line in lines:
        # Neither ends an instruction that goes on.
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        begun += goes_on.sub("", line)
        if not goes_on.search(line):
            _pass_here_documents(begun, lines)
            instructions.append(begun)
            begun = ""
    return "\n".join([*instructions, begun])


def _pass_here_documents(instruction: str, lines: Iterator[str]) -> None:
    """Take the here-documents of an instruction, which follow it in order, from the lines.

    Source:
        heredocsFromLine and Parse in BuildKit, frontend/dockerfile/parser/parser.go: the `<<`
        begins a word, and one without its end takes all lines.
    """
    if not _MAY_HOLD_DOCUMENTS.match(instruction):
        return
    for word in _WORD.findall(instruction):
        if found := _HERE_DOCUMENT.fullmatch(word):
            end, indent = _QUOTING.sub("", found[2]), "\t" if found[1] else ""
            any(line.removesuffix("\r").lstrip(indent) == end for line in lines)


def _expanded(word: str, values: Mapping[str, str]) -> str:
    return _VARIABLE.sub(
        lambda match: values.get(match[1] or match[2], "") or match[3] or "", word
    ).strip("\"'")


def content_tag(context: IO[bytes], args: Mapping[str, str], base_ids: Sequence[str]) -> str:
    """The tag of an image: equal for equal content, whoever builds it and wherever.

    Args:
        context: The archive that it is built from; read to its end and wound back.
        args: Arguments of the recipe.
        base_ids: Identities of the images that it begins from.
    """
    digest = hashlib.sha256(json.dumps([sorted(args.items()), list(base_ids)]).encode())
    for chunk in chunks_of(context):
        digest.update(chunk)
    context.seek(0)
    return digest.hexdigest()[:_TAG_LENGTH]


def write_starter(model_zoo: Path, args: Mapping[str, str]) -> list[Path]:
    """Write the files of a model_zoo that are not there yet.

    Args:
        args: Defaults for arguments of the recipe, in place of those it comes with.

    Returns:
        The files written.

    Raises:
        JobSpecError: The folder is not there, cannot be written to, or has a recipe already.
    """
    if not is_dir(model_zoo):
        raise JobSpecError(
            f"MODEL_ZOO {model_zoo} is no folder: name the one that holds the model, "
            f"or begin one with `elastic zoo new {model_zoo}`"
        )
    recipe = model_zoo / DOCKERFILE_NAME
    if recipe.exists():
        raise JobSpecError(f"{recipe} is there already: edit it, or remove it for a new one")
    files = {
        recipe: _with_defaults(TEMPLATE_PATH.read_text(encoding="utf-8"), args),
        model_zoo / "requirements.txt": _REQUIREMENTS,
        model_zoo / ".dockerignore": _DOCKERIGNORE,
    }
    written = []
    try:
        for path, text in files.items():
            if not path.exists():
                path.write_text(text, encoding="utf-8")
                written.append(path)
    except OSError as error:
        raise JobSpecError(
            f"{model_zoo} cannot be written to ({error.strerror}): choose another folder"
        ) from error
    return written


def _with_defaults(dockerfile: str, args: Mapping[str, str]) -> str:
    lines = dockerfile.splitlines()
    for name, value in args.items():
        lines = [
            f"ARG {name}={value}" if line.startswith(f"ARG {name}=") else line for line in lines
        ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel and what must be there before it can be used.

    Attributes:
        requirements: Lines of a requirements file, sorted.
    """

    name: str
    content: bytes
    requirements: tuple[str, ...]


def wheel_of_this_elastic(extras: Sequence[str] = ()) -> Wheel:
    """Pack the package that is running.

    Args:
        extras: What is to be there as well.

    Raises:
        PlatformError: It is not installed, so nobody knows what it needs.
    """
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise PlatformError(
            f"elastic runs from {Path(elastic.__file__).parent} without being installed, so what "
            f"it needs in an image is unknown: {install_this()}"
        ) from error
    requirements = tuple(
        sorted(line for line in distribution.requires or () if "extra ==" not in line)
    )
    prefix = f"{_FILE_NAME}-{distribution.version}"
    info = f"{prefix}.dist-info"
    files = dict(_package_files())
    files[f"{info}/METADATA"] = _metadata(distribution, requirements).encode()
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    files[f"{info}/entry_points.txt"] = (distribution.read_text("entry_points.txt") or "").encode()
    return Wheel(
        f"{prefix}-py3-none-any.whl", _zip(files, f"{info}/RECORD"), (*requirements, *extras)
    )


def _package_files() -> Iterator[tuple[str, bytes]]:
    root = Path(elastic.__file__).parent
    # An installed elastic holds the model zoo, a checkout does not; pods need it in neither.
    left_out = {"__pycache__", "model_zoo"}
    for path in root.rglob("*"):
        if path.is_file() and left_out.isdisjoint(path.relative_to(root).parts):
            yield path.relative_to(root.parent).as_posix(), path.read_bytes()


def _metadata(distribution: metadata.Distribution, requirements: tuple[str, ...]) -> str:
    # Without the README, which would make another image of every edit to it.
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {DISTRIBUTION}",
        f"Version: {distribution.version}",
        f"Requires-Python: {distribution.metadata['Requires-Python']}",
        *(f"Requires-Dist: {line}" for line in requirements),
    ]
    return "\n".join(lines) + "\n"


def _zip(files: dict[str, bytes], record_path: str) -> bytes:
    record = [
        f"{path},sha256={_digest(content)},{len(content)}"
        for path, content in sorted(files.items())
    ]
    record.append(f"{record_path},,")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in [*sorted(files.items()), (record_path, "\n".join(record).encode())]:
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@dataclass(slots=True)
class Context:
    """A build context in a temporary file; close it when the image is there.

    Attributes:
        file: The tar archive, at its begin.
        num_files: Files of the model_zoo in it.
        size_bytes: Their sizes together.
        largest: Path and size of the largest of them.
    """

    file: IO[bytes]
    num_files: int = 0
    size_bytes: int = 0
    largest: tuple[str, int] = ("", 0)

    def close(self) -> None:
        self.file.close()

    def count(self, path: PurePosixPath, size_bytes: int) -> None:
        """Take note of a file of the model_zoo."""
        self.num_files += 1
        self.size_bytes += size_bytes
        if size_bytes > self.largest[1]:
            self.largest = (str(path), size_bytes)


def pack(dockerfile: str, model_zoo: Path, wheel: Wheel) -> Context:
    """Write the context of an image.

    Raises:
        JobSpecError: Something in the model_zoo cannot be part of an image.
    """
    with ExitStack() as opened:
        context = Context(opened.enter_context(tempfile.TemporaryFile()))
        with tarfile.open(fileobj=context.file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _add_text(tar, "Dockerfile", dockerfile)
            _add_text(tar, "elastic/requirements.txt", "\n".join(wheel.requirements) + "\n")
            _add_bytes(tar, f"elastic/{wheel.name}", wheel.content)
            for name, content in _requirement_lists(model_zoo).items():
                _add_bytes(tar, f"requirements/{name}", content)
            tar.addfile(_entry("model_zoo", tarfile.DIRTYPE, 0o755))
            for path in files_of(model_zoo):
                try:
                    _add_path(tar, context, model_zoo, path)
                except OSError as error:
                    raise unreadable(model_zoo / path, error, _OR_IGNORE) from error
        context.file.seek(0)
        # From here on it is the caller who closes it.
        opened.pop_all()
    return context


def _add_path(tar: tarfile.TarFile, context: Context, model_zoo: Path, path: PurePosixPath) -> None:
    source = model_zoo / path
    name = f"model_zoo/{path}"
    mode = source.lstat().st_mode
    if stat.S_ISDIR(mode):
        tar.addfile(_entry(name, tarfile.DIRTYPE, 0o755))
    elif stat.S_ISLNK(mode):
        entry = _entry(name, tarfile.SYMTYPE, 0o777)
        entry.linkname = _link_target(model_zoo, path)
        tar.addfile(entry)
    elif stat.S_ISREG(mode):
        entry = _entry(name, tarfile.REGTYPE, 0o755 if mode & stat.S_IXUSR else 0o644)
        _add_file(tar, entry, source)
        context.count(path, entry.size)
    else:
        raise JobSpecError(
            f"{source} is neither a file nor a folder and cannot be part of an image: remove "
            f"it, or name it in {model_zoo}/.dockerignore"
        )


def _add_file(tar: tarfile.TarFile, entry: tarfile.TarInfo, source: Path) -> None:
    with source.open("rb") as file:
        entry.size = os.fstat(file.fileno()).st_size
        tar.addfile(entry, file)


def unreadable(source: Path, error: OSError, otherwise: str = "") -> JobSpecError:
    """What a file or folder of a model_zoo that cannot be read is told as."""
    return JobSpecError(
        f"{source} cannot be read for the image ({error.strerror or error}): make it readable and "
        f"keep it as it is while the job is submitted{otherwise}"
    )


def files_of(model_zoo: Path) -> list[PurePosixPath]:
    """What of a model_zoo goes into its image: all that no pattern of its .dockerignore matches.

    Returns:
        Files, links and folders, sorted; folders before what is in them.

    Raises:
        JobSpecError: A folder, or .dockerignore, cannot be read.
    """
    # The SDK reads patterns as Docker does; it comes only with the first image.
    from docker.utils.build import PatternMatcher

    patterns = [*ALWAYS_IGNORED, *_ignore_patterns(model_zoo)]
    # The matcher keeps .dockerignore for the engine, which gets none from us.
    try:
        found = {PurePosixPath(path) for path in PatternMatcher(patterns).walk(str(model_zoo))}
    except OSError as error:
        raise unreadable(Path(error.filename or model_zoo), error, _OR_IGNORE) from error
    found.discard(PurePosixPath(".dockerignore"))
    # A file that a `!pattern` brought back needs its ignored folders.
    parents = {parent for path in found for parent in path.parents if parent.name}
    return sorted(found | parents)


def _ignore_patterns(model_zoo: Path) -> list[str]:
    path = model_zoo / ".dockerignore"
    try:
        if not path.is_file():
            return []
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise unreadable(path, error) from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _requirement_lists(model_zoo: Path) -> dict[str, bytes]:
    """Content by name of what `pip install -r requirements.txt` may read, itself included."""
    found = {}
    for path in (path for pattern in _REQUIREMENT_LISTS for path in model_zoo.glob(pattern)):
        try:
            if path.is_file():
                found[path.name] = path.read_bytes()
        except OSError as error:
            raise unreadable(path, error) from error
        _check_own_name(path, found.get(path.name, b"").decode(errors="replace"))
    return dict(sorted(({"requirements.txt": b""} | found).items()))


def _check_own_name(path: Path, text: str) -> None:
    """Refuse a list by which an index would be asked for elastic, and give another project."""
    if (found := _OWN_NAME.search(text)) is None:
        return
    begin = found.start() + len(found[0]) - len(found[0].lstrip())
    number = text.count("\n", 0, begin) + 1
    line = text[begin:].partition("\n")[0].strip()
    raise JobSpecError(
        f"{path}:{number} asks for {line}, and a package index has another project of that name, "
        "or none: leave it out, as the image has the elastic that submits the job, and name the "
        "packages themselves, such as pyarrow"
    )


def _link_target(model_zoo: Path, path: PurePosixPath) -> str:
    """Where a link leads, which must be inside the model_zoo to be there in the image."""
    target = (model_zoo / path).readlink()
    # Unlike Path.resolve, it takes a link to itself, which is no fault of the image.
    real = Path(os.path.realpath(model_zoo / path))
    inside = real.is_relative_to(os.path.realpath(model_zoo))
    if target.is_absolute() or not inside:
        raise JobSpecError(
            f"{model_zoo / path} is a link to {target}, which is not part of the image: make it a "
            f"relative link inside {model_zoo}, copy what it leads to, or name it in "
            f"{model_zoo}/.dockerignore"
        )
    return target.as_posix()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = kind, mode, _MTIME_S
    return entry


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = _entry(name, tarfile.REGTYPE, 0o644)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    _add_bytes(tar, name, text.encode())


def chunks_of(file: IO[bytes], size_bytes: int = 1 << 20) -> Iterator[bytes]:
    """The rest of a file, piece by piece."""
    while chunk := file.read(size_bytes):
        yield chunk
