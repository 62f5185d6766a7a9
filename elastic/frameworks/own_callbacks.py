"""The user's `callbacks()`: called, and what it gives checked, before anything is trained."""

from typing import Any

from elastic.callbacks import HOOKS, Callback
from elastic.errors import ModelDefError
from elastic.frameworks.user_code import user_code
from elastic.spec.model_def import ModelDef


def made_callbacks(model_def: ModelDef) -> list[Any]:
    """What the user's function returns.

    Raises:
        ModelDefError: It failed, or returned no list.
    """
    if model_def.callbacks is None:
        return []
    with user_code("callbacks"):
        made = model_def.callbacks()
    if not isinstance(made, (list, tuple)):
        raise ModelDefError(
            f"callbacks returned a {type(made).__name__}: return a list of callbacks"
        )
    return list(made)


def own_callback(made: Any) -> Callback:
    """An object with hooks of `elastic.callbacks`.

    Raises:
        ModelDefError: It has none of them, or one that nobody would call.
    """
    name = type(made).__name__
    if isinstance(made, type):
        raise ModelDefError(f"callbacks gives the class {made.__name__}: make an object of it")
    found = [each for each in dir(made) if each.startswith("on_") and callable(getattr(made, each))]
    unserved = [each for each in found if each not in HOOKS]
    if unserved or not found:
        what = f"the hook {unserved[0]}, which nobody calls" if unserved else "none of the hooks"
        raise ModelDefError(f"callbacks gives a {name} with {what}: they are {', '.join(HOOKS)}")
    callback: Callback = made
    return callback
