"""`elastic zoo list`, `show` and `new`: the models that come with elastic."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from elastic.cli import zoo_copy
from elastic.cli.exit_codes import ExitCode
from elastic.cli.zoo_catalog import (
    STARTER,
    Framework,
    ZooModel,
    find_model,
    zoo_models,
)
from elastic.cli.zoo_copy import NewFolder
from elastic.cli.zoo_source import read_symbols
from elastic.errors import JobSpecError
from elastic.spec.packages import pip_install

_PACKAGES: Final[dict[Framework, str]] = {"torch": "torch", "keras": "tensorflow"}
"""Framework → the package, and the extra of elastic, that brings it; the default first."""


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
    click.echo(f"\n{_readme(model)}")
    return ExitCode.DONE


def _show_module(model: ZooModel, framework: Framework) -> None:
    path = model.module_path(framework)
    click.echo(f"{framework}: --model_def {model.name}.{model.entry.models[framework]}")
    symbols = read_symbols(path, model.symbol(framework))
    formatter = click.HelpFormatter()
    with formatter.indentation():
        formatter.write_dl([(symbol.call, symbol.summary) for symbol in symbols])
    click.echo(formatter.getvalue(), nl=False)


def _readme(model: ZooModel) -> str:
    return (model.folder / "README.md").read_text(encoding="utf-8").rstrip()


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
    new = NewFolder(model, framework or _default_framework(model), folder)
    if new.framework not in model.entry.models:
        raise JobSpecError(
            f"{model.name} is not there in {framework}, only in {', '.join(model.entry.models)}"
        )
    for path in zoo_copy.write(new):
        click.echo(f"wrote {path}")
    missing = new.missing_packages()
    if not missing:
        click.echo(f"wrote {zoo_copy.prepare(new)}: {model.entry.data}")
    _tell_next(new, missing)
    return ExitCode.DONE


def _default_framework(model: ZooModel) -> Framework:
    known = [framework for framework in _PACKAGES if framework in model.entry.models]
    return next((each for each in known if _is_importable(each)), known[0])


def _is_importable(framework: Framework) -> bool:
    return find_spec(_PACKAGES[framework]) is not None


def _tell_next(new: NewFolder, missing: list[str]) -> None:
    """What to type now, ready to be copied whole."""
    click.echo(f"\nA {new.framework} model; train it with:\n")
    if not _is_importable(new.framework):
        click.echo(pip_install(_PACKAGES[new.framework]))
    if missing:
        click.echo(f"pip install {' '.join(missing)}\n{new.prepare_command}")
    click.echo(new.train_command)
