"""What the symbols of a model's module look like, read from its text: nothing is imported."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elastic.spec.model_contract import RULES
from elastic.spec.model_def import SymbolNames

_NAMES: Final = SymbolNames()
_ORDER: Final = ("loss", "optimizer", *(getattr(_NAMES, rule.field) for rule in RULES))


@dataclass(frozen=True, slots=True)
class Symbol:
    """One symbol of the contract as a module has it.

    Attributes:
        call: Its name and parameters, with their defaults and without annotations.
        summary: The first line of its docstring, or nothing.
    """

    call: str
    summary: str


def read_symbols(path: Path, model: str) -> list[Symbol]:
    """The model's symbol and those of the contract that stand in a module, the model first."""
    found = {
        node.name: node
        for node in ast.parse(path.read_bytes(), filename=str(path)).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }
    return [_symbol(found[name]) for name in dict.fromkeys((model, *_ORDER)) if name in found]


def _symbol(node: ast.FunctionDef | ast.ClassDef) -> Symbol:
    summary = (ast.get_docstring(node) or "").partition("\n")[0]
    return Symbol(f"{node.name}({', '.join(_parameters(node))})", summary)


def _parameters(node: ast.FunctionDef | ast.ClassDef) -> list[str]:
    """Parameters as in a call; of a class those of its constructor."""
    if isinstance(node, ast.ClassDef):
        constructors = [
            each
            for each in node.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        ]
        return _parameters(constructors[0])[1:] if constructors else []
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    plain = len(positional) - len(arguments.defaults)
    return [
        argument.arg
        if index < plain
        else f"{argument.arg}={ast.unparse(arguments.defaults[index - plain])}"
        for index, argument in enumerate(positional)
    ]
