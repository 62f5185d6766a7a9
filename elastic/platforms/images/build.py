"""From a model_zoo to an image that pods can run, with nothing done twice."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from elastic.errors import ImageError
from elastic.platforms.images.context import (
    LARGE_BYTES,
    Context,
    base_images,
    content_tag,
    dockerfile_of,
    pack,
    wheel_of_this_elastic,
)
from elastic.platforms.images.engine import DockerEngine, size_text
from elastic.platforms.images.request import ImageRequest
from elastic.spec.image_progress import ImageProgress, OnProgress


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
