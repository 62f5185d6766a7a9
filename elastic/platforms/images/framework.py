"""The framework that an image must have for its model, read from the model's imports."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from elastic.spec.model_def.contract import find_module
from elastic.spec.packages import DISTRIBUTION

_MODULE_OF_PACKAGE: Final = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow"}
"""Keras computes with TensorFlow here, so that is what has to be there."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework by the module that shows it is there, and what brings it.

    Attributes:
        module: Its top module, which is also the name of elastic's extra for it.
        requirement: The package to install where the module is missing.
    """

    module: str
    requirement: str


def framework_of(model_zoo: Path, model_def: str) -> Framework | None:
    """The one framework that the module of a model imports itself, or None.

    Raises:
        ModelDefError: There is no such module.
    """
    found = _used_in(find_module(model_zoo, model_def).path)
    return _framework(found.pop()) if len(found) == 1 else None


def frameworks_in(files: Iterable[Path]) -> list[Framework]:
    """All that modules among some files import."""
    found: set[str] = set()
    for path in files:
        if path.suffix == ".py":
            found |= _used_in(path)
    return [_framework(module) for module in sorted(found)]


def _framework(module: str) -> Framework:
    return Framework(module, requirement_of(module))


def _used_in(path: Path) -> set[str]:
    try:
        tree = ast.parse(path.read_bytes() if path.is_file() else b"")
    except (SyntaxError, ValueError, OSError):
        # Whoever checks or packs the module tells it; an image can do without.
        return set()
    packages = set(_imports(tree)) & _MODULE_OF_PACKAGE.keys()
    return {_MODULE_OF_PACKAGE[package] for package in packages}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.partition(".")[0]


def requirement_of(extra: str) -> str:
    """What elastic's own extra asks for; without a range where elastic is not installed."""
    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        if marker.replace('"', "'").strip() == f"extra == '{extra}'":
            return requirement.strip()
    return extra
