"""`elastic zoo`: models to begin with, and the image of a model_zoo step by step."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from elastic.cli.exit_codes import ExitCode
from elastic.cli.zoo_models import list_command, show_command
from elastic.cli.zoo_new import new_command
from elastic.platforms.images.build import build, push
from elastic.platforms.images.context import files_of
from elastic.platforms.images.recipe import write_starter
from elastic.platforms.images.request import Framework, ImageRequest, framework_of, frameworks_in
from elastic.spec.describe import settings
from elastic.spec.paths import is_dir
from elastic.telemetry.preparation import open_image_display

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


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


_folder = click.argument(
    "model_zoo", metavar="[MODEL_ZOO]", type=click.Path(path_type=Path), default="."
)


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
