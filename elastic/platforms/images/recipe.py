"""The Dockerfile of an image, the images it begins from, and the name its content gives it."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from elastic.errors import JobSpecError
from elastic.platforms.images.context import chunks_of, unreadable
from elastic.platforms.images.request import DOCKERFILE_NAME, TEMPLATE_PATH

_TAG_LENGTH: Final = 20
_INSTRUCTION: Final = re.compile(r"^\s*(ARG|FROM)\s+(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
# A directive, which only other directives may stand before.
_ESCAPE: Final = re.compile(
    r"(?:#[ \t]*\w+[ \t]*=.*\n)*?#[ \t]*escape[ \t]*=[ \t]*([\\`])[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_VARIABLE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


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
    # Neither ends an instruction that goes on.
    lines = [
        line
        for line in dockerfile.split("\n")
        if line.strip() and not line.lstrip().startswith("#")
    ]
    return re.sub(rf"(?<!{escape}){escape}[ \t]*\n", "", "\n".join(lines))


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
