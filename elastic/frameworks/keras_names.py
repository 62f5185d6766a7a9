"""Names of Keras variables that are the same in every process.

Keras numbers the layers of a process (`dense`, `dense_1`, …), so a second model of the same class
has other paths than the first. Here the numbers are counted anew over one model, in the order of
its variables; in a fresh process the names come out as Keras made them.
"""

import re
from collections.abc import Sequence
from typing import Any


def variable_names(variables: Sequence[Any]) -> list[str]:
    """A unique name for each variable of one model, in order."""
    counted: dict[str, str] = {}
    used: dict[str, int] = {}
    names = []
    for variable in variables:
        parts = [_renumbered(part, counted, used) for part in variable.path.split("/")]
        names.append("/".join(parts))
    return _unique(names)


def optimizer_names(
    variables: Sequence[Any], model_variables: Sequence[Any], model_names: Sequence[str]
) -> list[str]:
    """Names of an optimizer's variables: `iteration`, or `dense/kernel/momentum` for a slot."""
    # Keras names a slot after its variable's path, with "_" for "/"; the longest match is meant.
    prefixes = sorted(
        (
            (f"{variable.path.replace('/', '_')}_", name)
            for variable, name in zip(model_variables, model_names, strict=True)
        ),
        key=lambda pair: -len(pair[0]),
    )
    names = []
    for variable in variables:
        leaf = variable.path.rpartition("/")[2]
        match = next((pair for pair in prefixes if leaf.startswith(pair[0])), None)
        names.append(leaf if match is None else f"{match[1]}/{leaf.removeprefix(match[0])}")
    return _unique(names)


def _renumbered(part: str, counted: dict[str, str], used: dict[str, int]) -> str:
    if part not in counted:
        base = re.sub(r"_\d+$", "", part)
        number = used.get(base, 0)
        used[base] = number + 1
        counted[part] = f"{base}_{number}" if number else base
    return counted[part]


def _unique(names: list[str]) -> list[str]:
    """Add `#1`, `#2`, … to names that come again: layers may give two weights one name."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        count = seen.get(name, 0)
        seen[name] = count + 1
        result.append(f"{name}#{count}" if count else name)
    return result
