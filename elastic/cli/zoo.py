"""`elastic zoo`: a model of one's own to begin with, and the image of a model_zoo step by step.

`list` and `show` are of the models that come with elastic. A model is a folder with a `zoo.yaml`.
Its modules are read as text, since their framework may not be installed: nothing of them is
imported.
"""

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any, Final, Literal, TypeAlias, TypeVar

import click
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import elastic
from elastic.cli.exit_codes import ExitCode
from elastic.client.platforms import ClusterChoice, default_platform
from elastic.errors import ElasticError, JobSpecError, PlatformError
from elastic.platforms.images.build import build, push
from elastic.platforms.images.context import (
    Framework,
    ImageRequest,
    files_of,
    framework_of,
    frameworks_in,
    write_starter,
)
from elastic.spec.job import FOLDER_FILE, settings
from elastic.spec.model_def import RULES, SymbolNames
from elastic.spec.platforms import HERE
from elastic.spec.settings.work import MAX_JOB_NAME_LENGTH
from elastic.spec.values import installed_version, is_dir, is_file, nearest, pip_install
from elastic.spec.yaml_text import dump_value, load_value
from elastic.telemetry.progress import open_image_display

FrameworkName = Literal["keras", "torch"]
Value: TypeAlias = bool | int | str
Settings: TypeAlias = dict[str, Value | dict[str, Value]]
"""Settings of a job by name, in the values that its flags can take."""

STARTER: Final = "starter"
"""The model that explains every symbol, and needs no data of anybody's."""
ENTRY_NAME: Final = "zoo.yaml"
PREPARE_NAME: Final = "prepare_data.py"
_PACKAGES: Final[dict[FrameworkName, str]] = {"torch": "torch", "keras": "tensorflow"}
"""FrameworkName → the package, and the extra of elastic, that brings it; the default first."""
_SUFFIXES: Final[dict[FrameworkName, str]] = {"keras": ".keras", "torch": ".safetensors"}
"""Of the trained model's file, by framework."""
_TRAINED: Final = "trained"
_NEEDED: Final = {".parquet": "pyarrow"}
"""What an image needs beside elastic to read the records, by the suffix of their files."""
_DATA: Final = "data"

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

_folder = click.argument(
    "model_zoo", metavar="[MODEL_ZOO]", type=click.Path(path_type=Path), default="."
)


class Entry(BaseModel):
    """What `zoo.yaml` says of one model.

    Attributes:
        learns: What the model learns, in a line.
        data: What it learns from, in a line.
        models: FrameworkName → `module.Symbol`, below the model's folder.
        train: The file of training records that `prepare_data.py` writes.
        evaluate: The file of evaluation records that it writes.
        settings: Settings of the job, as keys of a job file.
        expect: What comes out, in words.
        needs: Packages that `prepare_data.py` needs beyond those of elastic.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    learns: str
    data: str
    models: dict[FrameworkName, str] = Field(min_length=1)
    train: str
    evaluate: str
    settings: Settings
    expect: str
    needs: tuple[str, ...] = ()


class ZooModel(BaseModel):
    """One model that comes with elastic."""

    model_config = ConfigDict(frozen=True)

    name: str
    folder: Path
    entry: Entry

    def module_path(self, framework: FrameworkName) -> Path:
        """The file of the model in one framework."""
        module = self.entry.models[framework].rpartition(".")[0]
        return self.folder / f"{module}.py"

    def symbol(self, framework: FrameworkName) -> str:
        """The model's name in its module."""
        return self.entry.models[framework].rpartition(".")[2]


def zoo_root() -> Path:
    """The folder of the models: inside of an installed elastic, beside it in a checkout.

    Raises:
        ElasticError: There is none.
    """
    package = Path(elastic.__file__).parent
    for root in (package / "model_zoo", package.parent / "model_zoo"):
        if (root / STARTER / ENTRY_NAME).is_file():
            return root
    raise ElasticError(
        f"the elastic at {package} has come without its model zoo: install it anew, from a wheel"
    )


def zoo_models() -> list[ZooModel]:
    """Every model, the starter first and the others by name."""
    found = [_read(path) for path in zoo_root().glob(f"*/{ENTRY_NAME}")]
    return sorted(found, key=lambda model: (model.name != STARTER, model.name))


def find_model(name: str) -> ZooModel:
    """The model of that name.

    Raises:
        JobSpecError: There is none.
    """
    path = zoo_root() / name / ENTRY_NAME
    if name.isidentifier() and is_file(path):
        return _read(path)
    known = [model.name for model in zoo_models()]
    near = nearest(name, known)
    advice = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
    raise JobSpecError(f"elastic comes with no model {name}: {advice}")


def _read(path: Path) -> ZooModel:
    try:
        entry = Entry.model_validate(load_value(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ElasticError(f"{path} cannot be used: {error}") from error
    return ZooModel(name=path.parent.name, folder=path.parent, entry=entry)


@click.command("list", short_help="List the models that come with elastic.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="Form of the output.")  # fmt: skip
def list_command(output: str) -> int:
    """List the models that come with elastic: what each learns, and in which frameworks."""
    models = zoo_models()
    if output == "json":
        rows = [
            {
                "name": model.name,
                "frameworks": list(model.entry.models),
                "learns": model.entry.learns,
                "data": model.entry.data,
            }
            for model in models
        ]
        click.echo(json.dumps(rows, indent=2))
        return ExitCode.DONE
    table = [("MODEL", "FRAMEWORKS", "LEARNS")]
    table += [(m.name, ", ".join(m.entry.models), m.entry.learns) for m in models]
    widths = [max(len(row[column]) for row in table) + 2 for column in range(2)]
    for name, frameworks, learns in table:
        click.echo(f"{name:<{widths[0]}}{frameworks:<{widths[1]}}{learns}")
    return ExitCode.DONE


@click.command("show", short_help="Show one model: its symbols, parameters and README.")
@click.argument("name")
def show_command(name: str) -> int:
    """Show the model NAME: its symbols and their parameters, how it is trained, its README."""
    model = find_model(name)
    click.echo(f"{model.name}: {model.entry.learns}")
    click.echo(f"data: {model.entry.data}")
    click.echo(f"folder: {model.folder}")
    click.echo(f"yours: elastic zoo new FOLDER --template {model.name}")
    for framework in model.entry.models:
        click.echo()
        _show_module(model, framework)
    readme = (model.folder / "README.md").read_text(encoding="utf-8")
    click.echo(f"\n{readme.rstrip()}")
    return ExitCode.DONE


def _show_module(model: ZooModel, framework: FrameworkName) -> None:
    path = model.module_path(framework)
    click.echo(f"{framework}: --model_def {model.name}.{model.entry.models[framework]}")
    symbols = read_symbols(path, model.symbol(framework))
    formatter = click.HelpFormatter()
    with formatter.indentation():
        formatter.write_dl(symbols)
    click.echo(formatter.getvalue(), nl=False)


def read_symbols(path: Path, model: str) -> list[tuple[str, str]]:
    """The symbols of the contract that a module defines, that of the model first.

    Returns:
        How each is called, and the first line of its docstring.
    """
    body = ast.parse(path.read_bytes(), filename=str(path)).body
    found = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    names = SymbolNames()
    known = (model, "loss", "optimizer", *(getattr(names, rule.field) for rule in RULES))
    return [
        (f"{node.name}({_parameters(node)})", (ast.get_docstring(node) or "").partition("\n")[0])
        for name in dict.fromkeys(known)
        if (node := found.get(name))
    ]


def _parameters(node: ast.FunctionDef | ast.ClassDef) -> str:
    """Parameters with their defaults and without annotations; of a class, its constructor's."""
    if isinstance(node, ast.FunctionDef):
        arguments = node.args
    else:
        found = (each for each in node.body if isinstance(each, ast.FunctionDef))
        constructor = next((each for each in found if each.name == "__init__"), None)
        if constructor is None:
            return ""
        arguments = constructor.args
        del arguments.args[0]
    # Through it a model hands on what its framework takes, which is none of its own parameters.
    arguments.kwarg = None
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(arguments)


@click.command("new", short_help="Begin a model of your own, ready to train.")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--framework", type=click.Choice(list(_PACKAGES)),
              help="The one that is installed by default; torch where both are.")  # fmt: skip
@click.option("--template", default=STARTER, show_default=True, metavar="NAME",
              help="Model to begin from: `elastic zoo list`.")  # fmt: skip
def new_command(folder: Path, framework: FrameworkName | None, template: str) -> int:
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


def _default_framework(model: ZooModel) -> FrameworkName:
    known = [framework for framework in _PACKAGES if framework in model.entry.models]
    return next((each for each in known if _is_importable(each)), known[0])


def _is_importable(framework: FrameworkName) -> bool:
    return find_spec(_PACKAGES[framework]) is not None


def _words(model: ZooModel, framework: FrameworkName, folder: Path) -> dict[str, str]:
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
    model: ZooModel, framework: FrameworkName, folder: Path, words: dict[str, str]
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
        written = [folder / name for name in sources]
        if needed := _NEEDED.get(Path(model.entry.train).suffix):
            written.append(folder / "requirements.txt")
            written[-1].write_text(f"# Reads the records, in an image.\n{needed}\n", "utf-8")
    except OSError as error:
        raise _not_writable(folder, error) from error
    return written


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


def _setting_option(name: str) -> Callable[[_Decorated], _Decorated]:
    """The flag of one setting of a job, as `elastic train` has it."""
    setting = next(setting for setting in settings() if setting.name == name)
    names = [f"--{each}" for each in (setting.name, *setting.aliases)]
    return click.option(
        name,
        *names,
        default=setting.default,
        show_default=bool(setting.default),
        metavar=setting.metavar,
        help=setting.help,
    )


def _engine_options(function: _Decorated) -> _Decorated:
    """Give a command the flags that say which Docker engine to use."""
    for name in ("docker_tlskey", "docker_tlscert", "docker_tlscacert", "docker_base_url"):
        function = _setting_option(name)(function)
    return function


@click.group(
    "zoo",
    short_help="Begin a model of your own, and make images of models.",
    epilog="\b\nExamples:\n  elastic zoo new flowers --framework keras\n"
    "  elastic zoo init model_zoo --image_base=python:3.11-slim\n"
    "  elastic zoo build model_zoo --image=registry.example.com/team/mnist:v1\n"
    "  elastic zoo push registry.example.com/team/mnist:v1",
)
def command() -> None:
    """Begin a model of your own, and make images of models.

    `list`, `show` and `new` are about the models that come with elastic.
    `init`, `build` and `push` make the image of a model_zoo step by step:
    `elastic train` builds and pushes by itself, so they are for a recipe of
    your own, and for images that are made once and run often
    (`elastic train --image`).
    """


for _command in (list_command, show_command, new_command):
    command.add_command(_command)


@command.command("init", short_help="Write a recipe for the image into a model_zoo.")
@_folder
@_setting_option("image_base")
@_setting_option("extra_pypi_index")
def init(model_zoo: Path, image_base: str, extra_pypi_index: str) -> int:
    """Write elastic.Dockerfile, requirements.txt and .dockerignore into MODEL_ZOO."""
    request = ImageRequest(model_zoo, image_base=image_base, extra_pypi_index=extra_pypi_index)
    for path in write_starter(model_zoo, request.args):
        click.echo(f"wrote {path}")
    click.echo("edit them as you like: elastic train and elastic zoo build use them")
    return ExitCode.DONE


@command.command("build", short_help="Build the image of a model_zoo.")
@_folder
@click.option("--image", default="", metavar="NAME:TAG",
              help="Name of the image; made from its content by default.")  # fmt: skip
@click.option("--model_def", default="", metavar="TEXT",
              help="Model whose framework is installed where the base lacks it; the one framework "
              "that the modules of MODEL_ZOO import by default.")  # fmt: skip
@_setting_option("image_base")
@_setting_option("docker_image_repository")
@_setting_option("extra_pypi_index")
@_engine_options
def build_command(
    model_zoo: Path, image: str, model_def: str, docker_image_repository: str, **values: Any
) -> int:
    """Build the image of MODEL_ZOO and print its name.

    Nothing is pushed. An image of the same content is not built again.
    """
    framework = _framework_for(model_zoo, model_def)
    request = ImageRequest(
        model_zoo, repository=docker_image_repository, framework=framework, **values
    )
    with open_image_display(sys.stderr) as display:
        reference = build(request, display.show, image)
    click.echo(reference)
    return ExitCode.DONE


@command.command("push", short_help="Push an image to its registry.")
@click.argument("image")
@_engine_options
def push_command(image: str, **values: Any) -> int:
    """Push IMAGE, which `elastic zoo build` has printed or been given, to its registry."""
    request = ImageRequest(Path(), **values)
    with open_image_display(sys.stderr) as display:
        push(request, image, display.show)
    click.echo(image)
    return ExitCode.DONE


def _framework_for(model_zoo: Path, model_def: str) -> Framework | None:
    if model_def:
        return framework_of(model_zoo, model_def)
    # What is no folder is refused by who packs it.
    packed = files_of(model_zoo) if is_dir(model_zoo) else ()
    found = frameworks_in(model_zoo / path for path in packed)
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(framework.module for framework in found)
        click.echo(
            f"note: the modules of {model_zoo} import {names}, and none of them is installed where "
            "the base lacks it: choose by --model_def, or put it into requirements.txt",
            err=True,
        )
    return None
