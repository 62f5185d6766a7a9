"""Callbacks that ask for hooks that nobody can call, found in a module's text."""

import ast
from collections.abc import Iterator
from typing import Final

from elastic.errors import ModelDefError

_WHEN: Final = ("begin", "end")
UNSERVED_HOOKS: Final = (
    *(f"on_{what}batch_{when}" for what in ("", "train_", "test_", "predict_") for when in _WHEN),
    *(f"on_{what}_{when}" for what in ("test", "predict") for when in _WHEN),
)
"""Hooks around work that is the workers', or that the master does not do."""

_KERAS_WITH_UNSERVED: Final = {
    "BackupAndRestore": "on_train_batch_end",
    "TensorBoard": "on_train_batch_end",
}


def unserved(name: str, hook: str) -> ModelDefError:
    """The error of a callback with a hook that cannot be called."""
    return ModelDefError(
        f"callbacks gives a {name}, whose hook {hook} cannot be called: minibatches are the "
        "workers', and the master calls callbacks; leave it out, or use on_epoch_begin, "
        "on_epoch_end, on_train_begin and on_train_end"
    )


def check_callbacks(tree: ast.Module, function_name: str) -> None:
    """Look at what the module's callbacks function makes, as far as its text shows it.

    Raises:
        ModelDefError: One of them has a hook that cannot be called.
    """
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    for call in _calls(tree, function_name):
        name = _name_of(call.func)
        own = classes.get(name)
        if own is not None:
            hooks = [each.name for each in own.body if isinstance(each, ast.FunctionDef)]
        else:
            hooks = [_KERAS_WITH_UNSERVED.get(name, ""), *(key.arg or "" for key in call.keywords)]
        for hook in hooks:
            if hook in UNSERVED_HOOKS:
                raise unserved(name, hook)


def _calls(tree: ast.Module, function_name: str) -> Iterator[ast.Call]:
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == function_name:
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
