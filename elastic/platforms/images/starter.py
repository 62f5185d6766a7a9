"""What `elastic zoo init` puts into a model_zoo: a recipe to edit, and the lists it reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elastic.errors import JobSpecError
from elastic.platforms.images.request import DOCKERFILE_NAME, TEMPLATE_PATH
from elastic.spec.paths import is_dir

_REQUIREMENTS: Final = """\
# Python packages that the models need beyond those of the base image, one per line.
"""
_DOCKERIGNORE: Final = """\
# What shall not become part of the image, such as data and checkpoints.
*.npz
*.ckpt
data/
"""


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
