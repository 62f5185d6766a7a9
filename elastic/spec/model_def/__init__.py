"""The contract of a user's module: which symbols it has, and how they are found.

`docs/model_def.md` is the same contract for people. `contract` has its rules, and the words for a
module that breaks them; here a module is imported, and `check` reads its text alone, and finds the
model of a folder by it.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from elastic.errors import ModelDefError
from elastic.spec.model_def import contract
from elastic.spec.model_def.contract import ModuleFile, Parameters, SymbolRule
from elastic.spec.user_frames import where_raised

_PACKAGES: Final = {"torch": "torch", "keras": "keras", "tensorflow": "keras", "tf_keras": "keras"}
_MODEL_BASES: Final = {"keras": ("keras", "Model"), "torch": ("torch.nn", "Module")}


@dataclass(frozen=True, slots=True)
class SymbolNames:
    """What the contract's symbols are called in the user's module; flags rename them."""

    dataset_fn: str = "dataset_fn"
    batch_fn: str = "batch_fn"
    loss: str = "loss"
    optimizer: str = "optimizer"
    eval_metrics_fn: str = "eval_metrics_fn"
    callbacks: str = "callbacks"
    custom_data_reader: str = "custom_data_reader"
    prediction_outputs_processor: str = "PredictionOutputsProcessor"
    lr_scheduler: str = "lr_scheduler"


@dataclass(frozen=True, slots=True)
class ModelDef:
    """A user's module, imported and resolved.

    Attributes:
        module_name: Dotted name below the model zoo.
        framework: `keras` or `torch`.
        model: Class or function that makes the model from `**model_params`.
        loss: `loss(labels, predictions)` → scalar tensor, or a dict, list or tuple of them.
        optimizer: Keras: `optimizer()`; torch: `optimizer(parameters)`. With `total_steps` in its
            signature it is told how many updates the job will make; so is `lr_scheduler`.
        dataset_fn: `dataset_fn(dataset, mode)`; None where there is a `batch_fn` alone.
        batch_fn: `batch_fn(columns, mode)`, or None. Where it is there, it is what is used.
        eval_metrics_fn: `eval_metrics_fn()` → name → metric, or None.
        custom_data_reader: `custom_data_reader(data_origin, records_per_task, **params)`, or None.
        lr_scheduler: torch only: `lr_scheduler(optimizer)` → a scheduler stepped once an update,
            or `{"scheduler": …, "interval": "epoch"}` for one stepped once an epoch.
    """

    module_name: str
    framework: str
    model: Callable[..., Any]
    loss: Callable[..., Any]
    optimizer: Callable[..., Any]
    dataset_fn: Callable[..., Any] | None
    batch_fn: Callable[..., Any] | None = None
    eval_metrics_fn: Callable[[], Any] | None = None
    callbacks: Callable[..., Any] | None = None
    custom_data_reader: Callable[..., Any] | None = None
    prediction_outputs_processor: Callable[..., Any] | None = None
    lr_scheduler: Callable[..., Any] | None = None

    @property
    def takes_columns(self) -> bool:
        """Whether minibatches are made of columns, and of no object a record."""
        return self.batch_fn is not None

    @property
    def records_fn(self) -> str:
        """What makes examples of records, for people."""
        return "batch_fn" if self.takes_columns else "dataset_fn"


def load_model_def(model_zoo: Path, model_def: str, names: SymbolNames) -> ModelDef:
    """Import a user's module and resolve the symbols of the contract.

    Raises:
        ModelDefError: The module breaks the contract, or raised while it was imported: then that
            exception is the cause, and `user_frames.user_traceback` gives its text.
    """
    file = contract.find_module(model_zoo, model_def)
    module = _import_module(model_zoo.absolute(), file)
    present = dir(module)
    model = getattr(module, file.symbol, None)
    if model is None:
        raise contract.missing_model(file, present)
    functions = {
        rule.field: _resolve(file, module, rule, getattr(names, rule.field), present)
        for rule in (contract.KERAS_OPTIMIZER, *contract.RULES)
    }
    if functions["dataset_fn"] is None and functions["batch_fn"] is None:
        raise contract.missing_symbol(file, contract.DATASET_FN, names.dataset_fn, present)
    framework = _detect_framework(file, module, model, functions)
    optimizer = {"keras": contract.KERAS_OPTIMIZER, "torch": contract.TORCH_OPTIMIZER}[framework]
    for rule in (optimizer, *contract.RULES):
        # Keras has its own schedules, so there the name is the user's to take.
        if framework == "keras" and rule.field == "lr_scheduler":
            functions["lr_scheduler"] = None
            continue
        _check_function(file, getattr(names, rule.field), functions[rule.field], rule)
    optional = {rule.field: functions[rule.field] for rule in contract.RULES if not rule.required}
    return ModelDef(
        module_name=file.name,
        framework=framework,
        model=model,
        loss=_present(functions["loss"]),
        optimizer=_present(functions["optimizer"]),
        **optional,
    )


def load_function(
    model_zoo: Path, model_def: str, rule: SymbolRule, name: str
) -> Callable[..., Any]:
    """Import a user's module for one function of it; the other symbols need not be there.

    Raises:
        ModelDefError: The module cannot be imported, or lacks the function.
    """
    file = contract.find_module(model_zoo, model_def)
    module = _import_module(model_zoo.absolute(), file)
    function = getattr(module, name, None)
    if function is None:
        raise contract.missing_symbol(file, rule, name, dir(module))
    if not callable(function):
        raise contract.not_callable(file, name, rule, type(function).__name__)
    _check_function(file, name, function, rule)
    return _present(function)


def is_needed(rule: SymbolRule, name: str) -> bool:
    """Whether the module must have the symbol: the contract or a flag of the user asks for it."""
    return rule.required or name != getattr(SymbolNames(), rule.field)


def _import_module(model_zoo: Path, file: ModuleFile) -> ModuleType:
    """Import the module from the zoo and from nowhere else."""
    if "keras" not in sys.modules:
        # Read by Keras once, while the user's module imports it.
        os.environ["KERAS_BACKEND"] = "tensorflow"
    if sys.path[:1] != [str(model_zoo)]:
        sys.path.insert(0, str(model_zoo))
    _forget_other_zoo(model_zoo, file.name)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(file.name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{file.name}.".startswith(f"{error.name}."):
            raise contract.name_taken(file, "another package") from error
        raise contract.import_failed(file, error, where_raised(error, str(file.path))) from error
    except (Exception, SystemExit) as error:
        raise contract.import_failed(file, error, where_raised(error, str(file.path))) from error
    vars(sys.modules[file.name.partition(".")[0]])["__model_zoo__"] = model_zoo
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != file.path.resolve():
        raise contract.name_taken(file, found or "a built-in module")
    return module


def _forget_other_zoo(model_zoo: Path, module_name: str) -> None:
    """Drop a module of that name that an earlier call took from another zoo."""
    top = module_name.partition(".")[0]
    if getattr(sys.modules.get(top), "__model_zoo__", model_zoo) != model_zoo:
        for name in [each for each in sys.modules if f"{each}.".startswith(f"{top}.")]:
            del sys.modules[name]


def _resolve(
    file: ModuleFile, module: ModuleType, rule: SymbolRule, name: str, present: list[str]
) -> Callable[..., Any] | None:
    function: Callable[..., Any] | None = getattr(module, name, None)
    if function is None and is_needed(rule, name):
        raise contract.missing_symbol(file, rule, name, present)
    if function is not None and not callable(function):
        raise contract.not_callable(file, name, rule, type(function).__name__)
    return function


def _check_function(
    file: ModuleFile, name: str, function: Callable[..., Any] | None, rule: SymbolRule
) -> None:
    if function is None or rule.num_arguments is None:
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some functions written in C do not tell; the call itself will.
        return
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f"{code.co_filename}:{code.co_firstlineno}" if code else str(file.path)
    contract.check_signature(name, _parameters(signature), where, (rule,))


def _parameters(signature: inspect.Signature) -> Parameters:
    kinds = inspect.Parameter
    every = list(signature.parameters.values())
    positional = [
        each for each in every if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    names = {each.kind: each.name for each in every}
    return Parameters(
        positional=tuple(each.name for each in positional),
        num_required=sum(each.default is kinds.empty for each in positional),
        varargs=names.get(kinds.VAR_POSITIONAL),
        required_keywords=tuple(
            each.name
            for each in every
            if each.kind is kinds.KEYWORD_ONLY and each.default is kinds.empty
        ),
        varkw=names.get(kinds.VAR_KEYWORD),
    )


def _present(function: Callable[..., Any] | None) -> Callable[..., Any]:
    assert function is not None, "required symbols are resolved or refused"
    return function


def _detect_framework(
    file: ModuleFile,
    module: ModuleType,
    model: object,
    functions: Mapping[str, Callable[..., Any] | None],
) -> str:
    """Tell `keras` from `torch`, without importing either.

    A framework that the module uses is in `sys.modules` once the module is imported.

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
