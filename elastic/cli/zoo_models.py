"""`elastic zoo list` and `show`: the models that come with elastic, and what is said of each.

A model is a folder with a `zoo.yaml`. Its modules are read as text, since their framework may not
be installed: nothing of them is imported.
"""

import ast
import json
from pathlib import Path
from typing import Final, Literal, TypeAlias

import click
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import elastic
from elastic.cli.exit_codes import ExitCode
from elastic.errors import ElasticError, JobSpecError
from elastic.spec.model_def import SymbolNames
from elastic.spec.model_def.contract import RULES
from elastic.spec.names import nearest
from elastic.spec.paths import is_file
from elastic.spec.yaml_text import load_value

FrameworkName = Literal["keras", "torch"]
Value: TypeAlias = bool | int | str
Settings: TypeAlias = dict[str, Value | dict[str, Value]]
"""Settings of a job by name, in the values that its flags can take."""

STARTER: Final = "starter"
"""The model that explains every symbol, and needs no data of anybody's."""
ENTRY_NAME: Final = "zoo.yaml"
PREPARE_NAME: Final = "prepare_data.py"


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
