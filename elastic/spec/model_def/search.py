"""Which model a folder holds, where nobody says it: looked for in the text of its modules."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from elastic.errors import ModelDefError
from elastic.spec.model_def import SymbolNames, contract
from elastic.spec.model_def.check import definitions
from elastic.spec.model_def.contract import ModuleFile

_USUAL_NAMES: Final = ("CustomModel", "custom_model")
_BASES: Final = frozenset({"Module", "Model", "Sequential"})
"""How the bases of models end: `nn.Module`, `keras.Model`."""


def find_model_def(folder: Path, names: SymbolNames) -> str:
    """The one model among the modules of a folder, with its loss, optimizer and dataset_fn.

    A batch_fn will do in the place of the last.

    Args:
        names: What these are called.

    Returns:
        `module.Symbol`, as `--model_def` takes it.

    Raises:
        ModelDefError: There is none, or several.
    """
    functions = (names.loss, names.optimizer, names.dataset_fn)
    found: list[str] = []
    nearly: list[str] = []
    for path in sorted(folder.glob("*.py")):
        defined = _definitions(path, nearly)
        lacking = [
            name
            for name in functions
            if name not in defined and not (name == names.dataset_fn and names.batch_fn in defined)
        ]
        models = _models(defined)
        if not (lacking or models):
            nearly.append(
                f"{path} has {', '.join(functions)}, and none of its names is known to be the "
                f"model's: name it with --model_def {path.stem}.NAME"
            )
        elif not lacking:
            found += [f"{path.stem}.{model}" for model in models]
        elif len(lacking) < len(functions):
            nearly.append(f"{path} has no {' and no '.join(lacking)}: define it in this module")
    if len(found) == 1:
        return found[0]
    if found:
        raise ModelDefError(
            f"{folder} holds {len(found)} models: choose with --model_def {' or '.join(found)}"
        )
    raise ModelDefError(
        "; ".join(nearly)
        or f"{folder} has no module with a model, {', '.join(functions)}: name another folder, or "
        "begin one with `elastic zoo new FOLDER`"
    )


def _definitions(path: Path, problems: list[str]) -> Mapping[str, ast.AST | None]:
    """What a module binds; nothing where it is not Python, which is added to the problems."""
    try:
        return definitions(path)
    except SyntaxError as error:
        module = ModuleFile(path.stem, "", path)
        where = f"{path}:{error.lineno or 1}"
        problems.append(str(contract.import_failed(module, error, where)))
    except (ValueError, OSError) as error:
        problems.append(f"{path} cannot be read: {error}")
    return {}


def _models(defined: Mapping[str, ast.AST | None]) -> list[str]:
    """The names of a module that are a model's: the usual ones, or else classes of models."""
    usual = [name for name in _USUAL_NAMES if name in defined]
    return usual or [
        name
        for name, node in defined.items()
        if isinstance(node, ast.ClassDef) and any(_is_model_base(base) for base in node.bases)
    ]


def _is_model_base(base: ast.expr) -> bool:
    match base:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _BASES
    return False
