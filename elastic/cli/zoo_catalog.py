"""The models that come with elastic: where they lie and what their `zoo.yaml` says."""

from pathlib import Path
from typing import Final, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import elastic
from elastic.errors import ElasticError, JobSpecError
from elastic.spec.names import nearest
from elastic.spec.paths import is_file
from elastic.spec.yaml_text import load_value

Framework = Literal["keras", "torch"]
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
        models: Framework → `module.Symbol`, below the model's folder.
        train: The file of training records that `prepare_data.py` writes.
        evaluate: The file of evaluation records that it writes.
        settings: Settings of the job, as keys of a job file.
        expect: What comes out, in words.
        needs: Packages that `prepare_data.py` needs beyond those of elastic.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    learns: str
    data: str
    models: dict[Framework, str] = Field(min_length=1)
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

    def module_path(self, framework: Framework) -> Path:
        """The file of the model in one framework."""
        module = self.entry.models[framework].rpartition(".")[0]
        return self.folder / f"{module}.py"

    def symbol(self, framework: Framework) -> str:
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
