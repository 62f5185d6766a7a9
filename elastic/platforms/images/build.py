"""From a model_zoo to an image that pods can run, with nothing done twice.

A Docker engine builds images, names, pulls and pushes them. Which engine it is, and with whose
certificates, follows the conventions of the `docker` command, so that whoever can use it can use
elastic. It answers a build, a pull or a push with a stream of JSON objects and the HTTP status of
success; only an object with `error` in it tells a failure.
"""

import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Final

from elastic.errors import ImageError, PlatformError
from elastic.platforms.images.context import (
    LARGE_BYTES,
    Context,
    ImageRequest,
    base_images,
    content_tag,
    dockerfile_of,
    pack,
    registry_host,
    wheel_of_this_elastic,
)
from elastic.spec.job import JobSpec
from elastic.spec.status import ImageProgress, OnProgress

_LABELS: Final = {"app": "elastic"}

CONNECT_TIMEOUT_S: Final = 10
"""An engine that answers at all answers at once."""

REPLY_TIMEOUT_S: Final = 600
"""A registry may take minutes to commit a large layer, and the engine is silent for so long."""

_DEFAULT_URL: Final = JobSpec.model_fields["docker_base_url"].default

KEPT_LINES: Final = 20
"""Output of a failed step that is shown: pip's reason stands in its last lines."""

_STEP: Final = re.compile(r"(?i)step (\d+)/(\d+)\s*: (.*)")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_EXIT_CODE: Final = re.compile(r"returned a non-zero code: (\d+)")
_RUNNING: Final = " ---> Running in"
_ENGINE_NOISE: Final = (" --->", "Removing intermediate container", "Successfully ")
_DENIED: Final = (
    "denied",
    "unauthorized",
    "authentication required",
    "no basic auth credentials",
    "forbidden",
)
_LONGEST_TEXT: Final = 100

Message = Mapping[str, Any]


class DockerEngine:
    """Images of one Docker engine, and what it can send to registries."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    @classmethod
    def connect(cls, request: ImageRequest) -> "DockerEngine":
        """Reach the engine that a request names.

        An address other than the default wins; then `DOCKER_HOST` with its companions and the
        current Docker context decide, as they do for `docker`.

        Raises:
            PlatformError: There is no engine, or it cannot be used from here.
        """
        return cls(*_open_client(request))

    def close(self) -> None:
        self._client.close()

    def image_id(self, reference: str) -> str | None:
        """Identity of an image's content, or None where the engine does not have it."""
        from docker.errors import ImageNotFound

        with self._talking():
            try:
                image: Mapping[str, Any] = self._client.inspect_image(reference)
            except ImageNotFound:
                return None
        return str(image["Id"])

    def tag(self, reference: str, name: str) -> None:
        """Give an image a further name.

        Raises:
            ImageError: No image can have that name.
        """
        from docker.errors import APIError

        repository, tag = _split(name)
        with self._talking():
            try:
                self._client.tag(reference, repository, tag)
            except APIError as error:
                raise ImageError(
                    f"{name} cannot name an image: {_cause(error)}; write REGISTRY/NAME:TAG"
                ) from error

    def is_in_registry(self, reference: str) -> bool:
        """Whether its registry has the image; False also where the registry does not tell."""
        from docker.errors import APIError

        with self._talking():
            try:
                self._client.inspect_distribution(reference)
            except APIError:
                # Whatever is in the way, a push will say it better.
                return False
        return True

    def pull(self, reference: str, on_progress: OnProgress) -> None:
        """Fetch an image from its registry.

        Raises:
            ImageError: There is none of that name, or its registry refuses.
        """
        repository, tag = _split(reference)
        self._transfer(
            "pulling",
            reference,
            lambda: self._client.pull(repository, tag=tag, stream=True, decode=True),
            on_progress,
        )

    def push(self, reference: str, on_progress: OnProgress) -> None:
        """Send an image to its registry, which gets only the layers it lacks.

        Raises:
            ImageError: The registry refuses, or cannot be reached.
        """
        repository, tag = _split(reference)
        self._transfer(
            "pushing",
            reference,
            lambda: self._client.push(repository, tag=tag, stream=True, decode=True),
            on_progress,
        )

    def build(
        self, context: IO[bytes], args: Mapping[str, str], reference: str, on_progress: OnProgress
    ) -> None:
        """Build an image from an archive with a Dockerfile; a failed build leaves no name.

        Raises:
            ImageError: A step has failed.
        """
        from docker.errors import APIError

        output = BuildOutput(reference)
        with self._talking():
            try:
                stream: Iterator[Message] = self._client.build(
                    fileobj=context,
                    custom_context=True,
                    tag=reference,
                    buildargs=dict(args),
                    labels=_LABELS,
                    rm=True,
                    forcerm=True,
                    decode=True,
                )
                _tell(stream, output.read, on_progress)
            except APIError as error:
                raise ImageError(f"{reference} cannot be built: {_cause(error)}") from error

    def _transfer(
        self,
        verb: str,
        reference: str,
        start: Callable[[], Iterator[Message]],
        on_progress: OnProgress,
    ) -> None:
        from docker.errors import APIError

        output = TransferOutput(verb, reference)
        with self._talking():
            try:
                _tell(start(), output.read, on_progress)
            except APIError as error:
                raise transfer_error(verb, reference, _cause(error)) from error

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """Say in the user's terms that the engine went away or failed."""
        from docker.errors import DockerException
        from requests.exceptions import RequestException

        try:
            yield
        except (DockerException, RequestException) as error:
            raise PlatformError(
                f"the Docker engine at {self._url} failed: {_cause(error)}; try again, or run a "
                "ready image with --image"
            ) from error


def _tell(
    stream: Iterable[Message],
    read: Callable[[Message], Sequence[ImageProgress]],
    on_progress: OnProgress,
) -> None:
    failure: ImageError | None = None
    # Read to its end after a failure too, or its connection stays open.
    for message in stream:
        if failure is not None:
            continue
        try:
            for progress in read(message):
                on_progress(progress)
        except ImageError as error:
            failure = error
    if failure is not None:
        raise failure


def _cause(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def _split(reference: str) -> tuple[str, str]:
    """Name and tag; `latest` where a reference has none, as everywhere.

    The engine takes a digest in the place of the tag, and decides by it where there are both.
    """
    reference, _, digest = reference.partition("@")
    if digest:
        return _split(reference)[0], digest
    name, _, tag = reference.rpartition(":")
    if not name or "/" in tag:
        return reference, "latest"
    return name, tag


def _open_client(request: ImageRequest) -> tuple[Any, str]:
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


@dataclass(slots=True)
class BuildOutput:
    """The output of one build.

    Attributes:
        image: What is built, for messages.
    """

    image: str
    _number: int = 0
    _total: int = 0
    _instruction: str = ""
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def read(self, message: Message) -> list[ImageProgress]:
        """Take the next object of the stream.

        Raises:
            ImageError: The build has failed.
        """
        if "error" in message:
            raise self._error(str(message["error"]))
        return [
            progress
            for line in _COLOUR.sub("", str(message.get("stream", ""))).splitlines()
            if (progress := self._read_line(line.rstrip())) is not None
        ]

    def _read_line(self, line: str) -> ImageProgress | None:
        if step := _STEP.match(line):
            self._number, self._total = int(step[1]), int(step[2])
            self._instruction = " ".join(step[3].replace("\\", " ").split())
            self._lines.clear()
            return self._progress(self._instruction, is_detail=True)
        if line.startswith(_RUNNING) and self._instruction.startswith("RUN"):
            # Only now it is known that the step is not in the engine's cache.
            return self._progress(f"step {self._number} of {self._total}: {self._instruction}")
        if not line.strip() or line.startswith(_ENGINE_NOISE):
            return None
        self._lines.append(line)
        return self._progress(line.strip(), is_detail=True)

    def _progress(self, text: str, is_detail: bool = False) -> ImageProgress:
        done = (self._number - 1) / self._total if self._total else None
        return ImageProgress(_shortened(text), done, is_detail)

    def _error(self, cause: str) -> ImageError:
        if not self._number:
            return ImageError(f"{self.image} cannot be built: {cause}")
        code = _EXIT_CODE.search(cause)
        how = f"ended with exit code {code[1]}" if code else f"failed: {cause}"
        lines = [
            f"{self.image} cannot be built: step {self._number} of {self._total} {how}",
            f"  {self._instruction}",
            *(f"  | {line}" for line in self._lines),
            _build_advice(cause, self._instruction),
        ]
        return ImageError("\n".join(lines))


def _build_advice(cause: str, instruction: str) -> str:
    if "no space left" in cause:
        return "free some of the Docker engine's disk: docker image prune"
    if "$FRAMEWORK_REQUIREMENT" in instruction:
        return (
            "choose an --image_base that has the model's framework, or name it in requirements.txt"
        )
    if "model_zoo/requirements.txt" in instruction:
        return "mend requirements.txt in the model_zoo, or pass --extra_pypi_index"
    if instruction.startswith("RUN python -m pip"):
        return (
            "choose an --image_base that has Python 3.11 or later as `python`, with pip, and "
            "reaches a package index, or one that has what elastic needs"
        )
    return "mend the step, or choose another --image_base"


@dataclass(slots=True)
class TransferOutput:
    """The output of one pull or push.

    Attributes:
        verb: What is done, for progress: `pulling` or `pushing`.
        image: What is moved, for messages.
    """

    verb: str
    image: str
    _layers: dict[str, tuple[int, int]] = field(default_factory=dict)

    def read(self, message: Message) -> list[ImageProgress]:
        """Take the next object of the stream; tells nothing of what changes no figure.

        Raises:
            ImageError: The transfer has failed.
        """
        if "error" in message:
            raise transfer_error(self.verb, self.image, str(message["error"]))
        layer = message.get("id")
        detail = message.get("progressDetail") or {}
        if layer is None or "current" not in detail:
            return []
        # The size of a layer is a guess that what is sent may exceed.
        current, total = int(detail["current"]), int(detail.get("total", 0))
        self._layers[layer] = (current, max(current, total))
        done = sum(part for part, _ in self._layers.values())
        size = sum(whole for _, whole in self._layers.values())
        text = f"{self.verb} {self.image}: {size_text(done)} of {size_text(size)}"
        return [ImageProgress(text, done / size if size else None, is_detail=True)]


def transfer_error(verb: str, image: str, cause: str) -> ImageError:
    """What a failed pull or push means, and what to do."""
    host = registry_host(image.rpartition("/")[0])
    what = "cannot be pushed" if verb == "pushing" else "cannot be pulled"
    setting = "--docker_image_repository" if verb == "pushing" else "--image_base"
    text = cause.lower()
    if any(word in text for word in _DENIED):
        advice = f"run `docker login {host}`, or choose a {setting} that you may use"
        if verb == "pulling":
            advice += "; a private registry says the same of an image that does not exist"
    elif "not found" in text or "manifest unknown" in text:
        advice = f"check the name and the tag of {setting}"
    elif "http response to https client" in text:
        advice = f"the registry speaks no TLS: add {host} to the engine's insecure-registries"
    else:
        advice = f"check that the Docker engine reaches {host}, or choose another {setting}"
    return ImageError(f"{image} {what}: {cause.strip()}\n{advice}")


def size_text(size_bytes: int) -> str:
    """`12.3 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.1f} {unit}"
    return f"{size_bytes} bytes"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def build_and_push(request: ImageRequest, on_progress: OnProgress) -> str:
    """Make sure that the image of a model_zoo is where pods get it from.

    Content that the engine or the registry has already is neither built nor pushed again.

    Returns:
        The image's reference for pods.

    Raises:
        JobSpecError: The request, or something in the model_zoo, cannot be used.
        ImageError: The base is not to be had, a step of the build fails, or the push is refused.
        PlatformError: There is no Docker engine, or it fails.
    """
    request.check()
    with _prepared(request, on_progress) as image:
        is_pushed = bool(request.repository) and image.engine.is_in_registry(image.reference)
        # A node that never pulls can only have the image from the engine itself.
        if is_pushed and request.pull_policy != "Never":
            on_progress(ImageProgress(f"{image.reference} is in its registry already", 1.0))
            return image.reference
        image.build(on_progress)
        if request.repository and not is_pushed:
            _push(image.engine, image.reference, on_progress)
        return image.reference


def build(request: ImageRequest, on_progress: OnProgress, name: str = "") -> str:
    """Make sure that the engine has the image of a model_zoo.

    Args:
        name: Further name for the image; it goes on to the next image that is built under it.

    Returns:
        That name, or else the one that the content gives.

    Raises:
        JobSpecError: The request, or something in the model_zoo, cannot be used.
        ImageError: The base is not to be had, or a step of the build fails.
        PlatformError: There is no Docker engine, or it fails.
    """
    request.check()
    with _prepared(request, on_progress) as image:
        image.build(on_progress)
        if name:
            image.engine.tag(image.reference, name)
        return name or image.reference


def push(request: ImageRequest, reference: str, on_progress: OnProgress) -> None:
    """Send an image of the engine to its registry.

    Raises:
        ImageError: The engine has no such image, or the push is refused.
        PlatformError: There is no Docker engine, or it fails.
    """
    with closing(DockerEngine.connect(request)) as engine:
        if engine.image_id(reference) is None:
            raise ImageError(
                f"the Docker engine has no image {reference}: build it with elastic zoo build"
            )
        _push(engine, reference, on_progress)


@dataclass(frozen=True, slots=True)
class _Image:
    """An image that has a name already, though it may not be there yet."""

    engine: DockerEngine
    context: Context
    request: ImageRequest
    reference: str

    def build(self, on_progress: OnProgress) -> None:
        """Build it, unless the engine has it."""
        if self.engine.image_id(self.reference) is not None:
            on_progress(ImageProgress(f"{self.reference} is built already", 1.0))
            return
        begin_s = time.monotonic()
        on_progress(ImageProgress(self._contents()))
        self.engine.build(self.context.file, self.request.args, self.reference, on_progress)
        took_s = time.monotonic() - begin_s
        on_progress(ImageProgress(f"built {self.reference} in {took_s:.1f}s", 1.0))

    def _contents(self) -> str:
        context = self.context
        text = (
            f"building {self.reference} from {self.request.model_zoo}: "
            f"{context.num_files} files, {size_text(context.size_bytes)}"
        )
        if context.size_bytes > LARGE_BYTES:
            name, size_bytes = context.largest
            text += (
                f"; the largest is {name} with {size_text(size_bytes)}: name data in .dockerignore "
                "and mount it with --volume"
            )
        return text


@contextmanager
def _prepared(request: ImageRequest, on_progress: OnProgress) -> Iterator[_Image]:
    """Pack what goes in, and find the name of what comes out."""
    dockerfile = dockerfile_of(request.model_zoo)
    bases = base_images(dockerfile, request.args)
    wheel = wheel_of_this_elastic(request.extras)
    with (
        closing(DockerEngine.connect(request)) as engine,
        closing(pack(dockerfile, request.model_zoo, wheel)) as context,
    ):
        ids = [_base_id(engine, base, on_progress) for base in bases]
        tag = content_tag(context.file, request.args, ids)
        yield _Image(engine, context, request, request.reference(tag))


def _base_id(engine: DockerEngine, base: str, on_progress: OnProgress) -> str:
    """Identity of a base image, fetched where the engine lacks it."""
    found = engine.image_id(base)
    if found is None:
        on_progress(ImageProgress(f"pulling {base}"))
        engine.pull(base, on_progress)
        found = engine.image_id(base)
    if found is None:
        raise ImageError(f"{base} was pulled and is gone again: is the engine's disk full?")
    return found


def _push(engine: DockerEngine, reference: str, on_progress: OnProgress) -> None:
    begin_s = time.monotonic()
    on_progress(ImageProgress(f"pushing {reference}"))
    engine.push(reference, on_progress)
    took_s = time.monotonic() - begin_s
    on_progress(ImageProgress(f"pushed {reference} in {took_s:.1f}s", 1.0))
