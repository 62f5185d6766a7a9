"""Images of a Docker engine: built, named, pulled and pushed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Final

from elastic.errors import ImageError, PlatformError
from elastic.platforms.images.connection import open_client
from elastic.platforms.images.messages import (
    BuildOutput,
    Message,
    TransferOutput,
    transfer_error,
)
from elastic.platforms.images.request import ImageRequest
from elastic.spec.image_progress import ImageProgress, OnProgress

_LABELS: Final = {"app": "elastic"}


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
        return cls(*open_client(request))

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
