"""What a Docker engine says while it builds or moves an image, read into progress and errors.

An engine answers a build, a pull or a push with a stream of JSON objects and the HTTP status of
success; only an object with `error` in it tells a failure.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elastic.errors import ImageError
from elastic.platforms.images.request import registry_host
from elastic.spec.image_progress import ImageProgress

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
