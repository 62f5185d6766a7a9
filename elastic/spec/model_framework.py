"""Which framework a user's module is written for, without importing one.

A framework that the module uses is in `sys.modules` once the module is imported.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, ModuleType
from typing import Any, Final

from elastic.errors import ModelDefError
from elastic.spec import model_contract as contract
from elastic.spec.model_contract import ModuleFile

_PACKAGES: Final = {"torch": "torch", "keras": "keras", "tensorflow": "keras", "tf_keras": "keras"}
_MODEL_BASES: Final = {"keras": ("keras", "Model"), "torch": ("torch.nn", "Module")}


def detect_framework(
    file: ModuleFile,
    module: ModuleType,
    model: object,
    functions: Mapping[str, Callable[..., Any] | None],
) -> str:
    """Tell `keras` from `torch`.

    A model class tells by its base. A function tells by the framework that it uses, then by what
    the optimizer and the loss use, then by the whole module; the first that names one decides.

    Raises:
        ModelDefError: The model is no class of a framework and no function, or nothing decides.
    """
    bases = {name: _base_class(name) for name in _MODEL_BASES}
    for framework, base in bases.items():
        if base is None:
            continue
        if isinstance(model, type) and issubclass(model, base):
            return framework
        if isinstance(model, base):
            raise contract.model_not_buildable(file, "is a model already")
    if isinstance(model, type):
        raise contract.model_not_buildable(file, "is a class of neither framework")
    if not callable(model):
        raise contract.model_not_buildable(file, f"is of type {type(model).__name__}")
    sources = [
        _used_by(model),
        _used_by(functions["optimizer"]),
        _used_by(functions["loss"]),
        {name for name in map(_framework_of, vars(module).values()) if name is not None},
        {name for name, base in bases.items() if base is not None},
    ]
    for frameworks in sources:
        if len(frameworks) == 1:
            return frameworks.pop()
    raise ModelDefError(
        f"module {file.name} ({file.path}) does not show whether {file.symbol} is a Keras or a "
        "torch model: make it a class derived from keras.Model or torch.nn.Module"
    )


def _base_class(framework: str) -> type | None:
    module, name = _MODEL_BASES[framework]
    base = getattr(sys.modules.get(module), name, None)
    return base if isinstance(base, type) else None


def _used_by(function: object) -> set[str]:
    """The frameworks behind the names that a function's own code mentions."""
    if isinstance(function, type):
        framework = _framework_of(function)
        return set() if framework is None else {framework}
    if not callable(function):
        return set()
    plain: Any = inspect.unwrap(function)
    plain = getattr(plain, "func", plain)
    code = getattr(plain, "__code__", None)
    if code is None:
        framework = _framework_of(plain)
        return set() if framework is None else {framework}
    names = set(_names_in(code))
    found = {_framework_of(plain.__globals__[name]) for name in names & plain.__globals__.keys()}
    # A framework imported inside the function is a name of its code and of nothing else.
    found |= {_PACKAGES.get(name.partition(".")[0]) for name in names - plain.__globals__.keys()}
    return {name for name in found if name is not None}


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _framework_of(value: object) -> str | None:
    """The framework that a module, class, function or object comes from."""
    if isinstance(value, ModuleType):
        name = value.__name__
    else:
        owner = value if inspect.isclass(value) or inspect.isroutine(value) else type(value)
        name = getattr(owner, "__module__", None) or ""
        for base in getattr(owner, "__mro__", ()):
            framework = _PACKAGES.get(base.__module__.partition(".")[0])
            if framework is not None:
                return framework
    return _PACKAGES.get(name.partition(".")[0])
