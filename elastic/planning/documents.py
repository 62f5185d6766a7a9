"""What is written in YAML or JSON, as one value; and what is said of what is wrong in it. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from elastic.errors import DescriptionError
from elastic.spec.names import nearest
from elastic.spec.yaml_text import load_value

F = TypeVar("F", bound="Form")

_MAX_SHOWN: Final = 80


class Form(BaseModel):
    """Keys of a document; one that is unknown is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_document(text: str, name: str) -> Any:
    """What a text holds: JSON where it begins like it, else YAML.

    Args:
        text: All of it.
        name: Of the file, for errors.

    Raises:
        DescriptionError: It is neither.
    """
    try:
        # PyYAML takes a minute for what JSON has read in a second.
        if text.lstrip()[:1] in {"{", "["}:
            return json.loads(text)
        return load_value(text)
    except json.JSONDecodeError as error:
        raise DescriptionError(f"{name}, line {error.lineno}: no JSON: {error.msg}") from error
    except yaml.YAMLError as error:
        raise DescriptionError(f"{name} is no YAML: {' '.join(str(error).split())}") from error


def read_form(form: type[F], document: Any, name: str) -> F:
    """A document in its form.

    Raises:
        DescriptionError: It has another one; names the key and its value.
    """
    if not isinstance(document, Mapping):
        shown = "is empty" if document is None else f"holds a {type(document).__name__}"
        raise DescriptionError(f"{name} {shown}: expected keys with values")
    try:
        return form.model_validate(document)
    except ValidationError as error:
        raise DescriptionError(f"{name}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"{path} is missing"
    if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"{path} is no key that is known here{_near(str(first['loc'][-1]))}"
    if isinstance(first["input"], Mapping | list):
        return f"{path}: {message}" if path else message
    shown = repr(first["input"])
    cut = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
    return f"{path}={cut}: {message}"


def _near(key: str) -> str:
    known = {name for form in _all_forms(Form) for name in form.model_fields}
    near = nearest(key, sorted(known))
    return f": did you mean {near}?" if near else ""


def _all_forms(form: type[Form]) -> set[type[Form]]:
    below = {each for sub in form.__subclasses__() for each in _all_forms(sub)}
    return {form, *below}
