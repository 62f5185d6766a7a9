"""`elastic zoo new`: a model of the zoo, copied into a folder of one's own."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Final

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.zoo_models import (
    PREPARE_NAME,
    STARTER,
    Framework,
    ZooModel,
    find_model,
    zoo_root,
)
from elastic.client.opening import ClusterChoice, default_platform
from elastic.errors import JobSpecError, PlatformError
from elastic.spec.job_file import FOLDER_FILE
from elastic.spec.packages import installed_version, pip_install
from elastic.spec.platforms import HERE
from elastic.spec.settings.work import MAX_JOB_NAME_LENGTH
from elastic.spec.yaml_text import dump_value

_PACKAGES: Final[dict[Framework, str]] = {"torch": "torch", "keras": "tensorflow"}
"""Framework → the package, and the extra of elastic, that brings it; the default first."""
_SUFFIXES: Final[dict[Framework, str]] = {"keras": ".keras", "torch": ".safetensors"}
"""Of the trained model's file, by framework."""
_TRAINED: Final = "trained"
_DATA: Final = "data"


@click.command("new", short_help="Begin a model of your own, ready to train.")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--framework", type=click.Choice(list(_PACKAGES)),
              help="The one that is installed by default; torch where both are.")  # fmt: skip
@click.option("--template", default=STARTER, show_default=True, metavar="NAME",
              help="Model to begin from: `elastic zoo list`.")  # fmt: skip
def new_command(folder: Path, framework: Framework | None, template: str) -> int:
    """Begin a model of your own in FOLDER, with records that it can learn from.

    Prints the command that trains it. What is there already is never
    overwritten.
    """
    model = find_model(template)
    chosen = framework or _default_framework(model)
    if chosen not in model.entry.models:
        raise JobSpecError(
            f"{model.name} is not there in {chosen}, only in {', '.join(model.entry.models)}"
        )
    words = _words(model, chosen, folder)
    _make_folder(folder)
    for path in _write(model, chosen, folder, words):
        click.echo(f"wrote {path}")
    missing = [name for name in model.entry.needs if installed_version(name) is None]
    if not missing:
        click.echo(f"wrote {_make_records(folder, words)}: {model.entry.data}")
    click.echo(f"\nA {chosen} model; train it with:\n")
    if not _is_importable(chosen):
        click.echo(pip_install(_PACKAGES[chosen]))
    if missing:
        click.echo(f"pip install {' '.join(missing)}\n{words['prepare']}")
    click.echo(words["train_command"])
    return ExitCode.DONE


def _default_framework(model: ZooModel) -> Framework:
    known = [framework for framework in _PACKAGES if framework in model.entry.models]
    return next((each for each in known if _is_importable(each)), known[0])


def _is_importable(framework: Framework) -> bool:
    return find_spec(_PACKAGES[framework]) is not None


def _words(model: ZooModel, framework: Framework, folder: Path) -> dict[str, str]:
    """What the templates say of one folder; its commands as one types them."""
    entry, title = model.entry, folder.absolute().name
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).lstrip("-0123456789")
    job = plain[:MAX_JOB_NAME_LENGTH].rstrip("-") or "job"
    is_local = default_platform(ClusterChoice()) == HERE
    # What has a command run on this machine, where it would not by itself.
    platform = "" if is_local else f" --platform {HERE}"
    settings: dict[str, Any] = {
        "job_name": job,
        # The same command again trains anew.
        "overwrite": True,
        "model_def": f"model.{model.symbol(framework)}",
        "training_data_dir": f"{_DATA}/{entry.train}",
        "evaluation_data_dir": f"{_DATA}/{entry.evaluate}",
        **entry.settings,
        "output": _TRAINED + _SUFFIXES[framework],
    }
    return {
        **{name: getattr(entry, name) for name in ("learns", "train", "evaluate", "expect")},
        "title": title,
        "name": model.name,
        "framework": "Keras" if framework == "keras" else framework,
        "settings": dump_value(settings).rstrip(),
        "trained": _TRAINED,
        "output": settings["output"],
        "folder": shlex.quote(str(folder)),
        "job": job,
        "platform": platform,
        "prepare": shlex.join(["python", str(folder / PREPARE_NAME), str(folder / _DATA)]),
        "train_command": f"elastic train {shlex.quote(str(folder))}{platform}",
    }


def _make_folder(path: Path) -> None:
    """Make a folder that is not there yet, or see that it is empty.

    Raises:
        JobSpecError: It holds something, or cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_free = not any(path.iterdir())
    except FileExistsError:
        is_free = False
    except OSError as error:
        raise _not_writable(path, error) from error
    if not is_free:
        raise JobSpecError(
            f"{path} is there already, and nothing is overwritten: choose another name"
        )


def _write(
    model: ZooModel, framework: Framework, folder: Path, words: dict[str, str]
) -> list[Path]:
    """Write all but the records.

    Raises:
        JobSpecError: The folder cannot be written to.
    """
    # Not `shutil.copytree`: the folder would take over the mode that an installation has.
    templates = zoo_root() / "new"
    sources = {
        "README.md": templates / "README.md.template",
        "model.py": model.module_path(framework),
        FOLDER_FILE: templates / "elastic.yaml.template",
        PREPARE_NAME: model.folder / PREPARE_NAME,
        # The records stay in the image: `elastic zoo init` would leave them out, and leaves this
        # file alone.
        ".dockerignore": templates / "dockerignore.template",
    }
    try:
        for name, source in sources.items():
            text = source.read_text(encoding="utf-8")
            is_template = source.parent == templates
            (folder / name).write_text(
                Template(text).substitute(words) if is_template else text, encoding="utf-8"
            )
    except OSError as error:
        raise _not_writable(folder, error) from error
    return [folder / name for name in sources]


def _make_records(folder: Path, words: dict[str, str]) -> Path:
    """Run the program that makes the records, and return where they are.

    Raises:
        PlatformError: It failed.
    """
    program, data = folder / PREPARE_NAME, folder / _DATA
    command = [sys.executable, str(program), str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(data, ignore_errors=True)
        why = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
        raise PlatformError(f"{program} made no records: {why}\nrun it again: {words['prepare']}")
    return data


def _not_writable(path: Path, error: OSError) -> JobSpecError:
    return JobSpecError(f"{path} cannot be written to ({error.strerror}): choose another folder")
