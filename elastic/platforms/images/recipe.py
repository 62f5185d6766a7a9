"""The Dockerfile of an image, the images it begins from, and the name its content gives it.

`elastic zoo init` puts it into a model_zoo, to be edited, with the lists that it reads.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from elastic.errors import JobSpecError
from elastic.platforms.images.context import chunks_of, unreadable
from elastic.platforms.images.request import DOCKERFILE_NAME, TEMPLATE_PATH
from elastic.spec.paths import is_dir

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
