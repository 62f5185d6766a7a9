"""The text forms of settings: what a flag holds, and a job file may hold, read into values.

Each function is a pydantic `BeforeValidator` (see the types at the end), so flags, job files and
Python share one reading. Values that are not text pass through to pydantic's own checks.
All raise ValueError, also for a wrong type: pydantic reports no other exception as the user's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import yaml
from pydantic import BeforeValidator, Field

from elastic.spec.yaml_text import load_value

MAX_COUNT: Final = 2**31 - 1
"""What every array and every message can count; more is a slip of the finger."""

_KEY: Final = r"[A-Za-z_]\w*"
_TRUTH: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_OPENING: Final = {"[": "]", "{": "}"}
# An apostrophe inside a word (don't) quotes nothing, as in YAML.
_BEFORE_QUOTE: Final = "=[{,:"


def read_truth(value: object) -> object:
    """Read true/false, yes/no and 1/0; everything else is refused by name.

    Raises:
        ValueError: The value is none of them.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, (str, int)) and (truth := _TRUTH.get(str(value).lower())) is not None:
        return truth
    raise ValueError(f"{value!r} is not one of true, false, yes, no, 1, 0")


def refuse_truth(value: object) -> object:
    """Keep `true` from counting as the number 1.

    Raises:
        ValueError: The value is a truth value.
    """
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number")  # noqa: TRY004 - see above
    return value


def read_params(value: object) -> object:
    """Read `a=1,b=[2,3];c=text` into arguments; each value is YAML, never code.

    Raises:
        ValueError: An item is not `name=value`, a name comes twice, or a value is not YAML.
    """
    if isinstance(value, str):
        return dict(_params_of(value))
    if isinstance(value, Mapping):
        for name, item in value.items():
            _refuse_unplain(str(name), item)
    return value


def _params_of(text: str) -> Iterator[tuple[str, object]]:
    seen: set[str] = set()
    for item in filter(str.strip, _split_outside_brackets(text)):
        name, equals, raw = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"{item.strip()!r} in {text!r} has no '=': write name=value")
        if not re.fullmatch(_KEY, name):
            raise ValueError(f"{name!r} in {text!r} is not the name of an argument")
        if name in seen:
            raise ValueError(f"{name!r} comes twice in {text!r}: leave one out")
        seen.add(name)
        try:
            parsed = load_value(raw)
        except yaml.YAMLError as error:
            raise ValueError(f"{name}={raw!r} is not a YAML value: close or quote it") from error
        _refuse_unplain(name, parsed)
        yield name, parsed


def _split_outside_brackets(text: str) -> Iterator[str]:
    """Items between the commas and semicolons that stand in no bracket and no quotes."""
    closing: list[str] = []
    quote, previous, start = "", "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and (previous == char or previous in _BEFORE_QUOTE):
            quote = char
        elif char in _OPENING:
            closing.append(_OPENING[char])
        elif closing and char == closing[-1]:
            closing.pop()
        elif char in ",;" and not closing:
            yield text[start:position]
            start = position + 1
        previous = char if not char.isspace() else previous
    if quote or closing:
        raise ValueError(f"{text!r} has no closing {quote or closing[-1]}")
    yield text[start:]


def _refuse_unplain(name: str, value: object) -> None:
    """Refuse what would not come back unchanged from the JSON that replicas receive."""
    match value:
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ValueError(  # noqa: TRY004 - see above
                        f"{name} has the key {key!r}: keys must be text, so quote it"
                    )
                _refuse_unplain(f"{name}.{key}", item)
        case list() | tuple():
            for item in value:
                _refuse_unplain(name, item)
        case None | str() | int() | float():
            pass
        case _:
            raise ValueError(
                f"{name} is a {type(value).__name__}: "
                "only text, numbers, true, false, null, lists and mappings can be passed on"
            )


def read_envs(value: object) -> object:
    """Read `e1=a,b,e2=c`: a comma or semicolon that no `name=` follows belongs to the value.

    A number or a truth value of a mapping is the text that YAML writes for it.

    Raises:
        ValueError: The text does not begin with `name=`, a name comes twice, or a value of a
            mapping is nothing, a list, a mapping or a date.
    """
    if isinstance(value, Mapping):
        return {name: _env_text(str(name), item) for name, item in value.items()}
    if not isinstance(value, str):
        return value
    envs: dict[str, str] = {}
    for item in re.split(rf"[,;](?=\s*{_KEY}=)", value):
        if not item.strip():
            continue
        name, equals, text = item.partition("=")
        if not equals or not re.fullmatch(_KEY, name.strip()):
            raise ValueError(f"{item.strip()!r} in {value!r} does not begin with NAME=")
        if name.strip() in envs:
            raise ValueError(f"{name.strip()!r} comes twice in {value!r}: leave one out")
        envs[name.strip()] = text
    return envs


def _env_text(name: str, value: object) -> str:
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
    raise ValueError(f"{name} is {value!r}, which is not text: put it in quotes")


Truth = Annotated[bool, BeforeValidator(read_truth)]
Whole = Annotated[int, BeforeValidator(refuse_truth)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT), BeforeValidator(refuse_truth)]
# An infinite timeout would leave the JSON that replicas receive as null.
Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(refuse_truth)]
Params = Annotated[
    dict[str, Any], BeforeValidator(read_params, json_schema_input_type=dict[str, Any] | str)
]
Envs = Annotated[
    dict[str, str], BeforeValidator(read_envs, json_schema_input_type=dict[str, Any] | str)
]
