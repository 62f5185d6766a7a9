"""The contract of a user's module: which symbols it has, what they look like, how they are found.

`docs/model_def.md` is the same contract for people. `model_check` reads the module's text and
`load_model_def` imports it; both say the same of a module that breaks the rules. What the user's
own code raises is told by the line of it that it came from.
"""

import errno
import importlib
import inspect
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any, Final

from elastic.errors import ElasticError, ModelDefError
from elastic.spec.values import is_dir, nearest, pip_install

_NOT_USER_CODE: Final = (
    str(Path(__file__).resolve().parent.parent) + "/",
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    f"{site.getusersitepackages()}/",
    "<",
)
_GENERATED_FILE: Final = "__autograph_generated_file"
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_AUTOGRAPH_HEAD: Final = ": in user code:\n"
"""How TensorFlow begins the message of what the user's code raised while it was traced."""

_READ_ONLY: Final = os.strerror(errno.EROFS)
"""Libraries that write files have their own exceptions, and tell this in the same words."""


def where_raised(error: BaseException, default: str) -> str:
    """The innermost `file:line` of the user's code behind an exception.

    Args:
        default: The answer where no line of the user's was involved.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno or 1}"
    own = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_user_file(frame.filename)
    ]
    return own[-1] if own else default


def error_text(error: BaseException) -> str:
    """Type, message and the user's line, in one sentence; where it can write, if it could not."""
    where = where_raised(error, "")
    kind = type(error).__name__
    text = f"{kind}: {error}"
    if text.startswith(f"{kind}{_AUTOGRAPH_HEAD}"):
        # Its own kind of traceback comes first, then type and message as of any other.
        trace, found, message = text.partition(f"\n    {kind}: ")
        text = f"{kind}: {message.strip()}" if found else text
        where = where or _last_user_line(trace)
    return f"{text}{f' ({where})' if where else ''}{read_only_advice(error)}"


def read_only_advice(error: BaseException) -> str:
    """`: …` with what to do where nothing can be written, or nothing: a pod's root is such."""
    if _READ_ONLY not in str(error):
        return ""
    return ": write to /tmp, or what is to last below the mount_path of a --volume"


def _last_user_line(trace: str) -> str:
    own = [f"{name}:{line}" for name, line in _FRAME.findall(trace) if _is_user_file(name)]
    return own[-1] if own else ""


def user_traceback(error: BaseException) -> str | None:
    """The traceback behind an error from the first line of the user's code on.

    None where no line of the user's is behind it: the message is all there is to say then.
    """
    cause = error
    while isinstance(cause, ElasticError) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, SyntaxError) and cause.filename is not None:
        # It is raised by who reads the user's file; all lines of that are Python's and ours.
        only = traceback.format_exception_only(cause)
        return "".join(["Traceback (most recent call last):\n", *only]).rstrip()
    start: TracebackType | None = cause.__traceback__
    while start is not None and not _is_user_file(start.tb_frame.f_code.co_filename):
        start = start.tb_next
    if start is None:
        return None
    return "".join(traceback.format_exception(type(cause), cause, start)).rstrip()


def stuck_in(frame: FrameType) -> str | None:
    """Which of the user's functions a thread is in, and on which line; None where in none."""
    own = [
        (each.f_code, line)
        for each, line in traceback.walk_stack(frame)
        if _is_user_file(each.f_code.co_filename)
    ]
    if not own:
        return None
    (innermost, line), (outermost, _) = own[0], own[-1]
    name = outermost.co_qualname
    what = f"the import of {outermost.co_filename}" if name == "<module>" else name
    return f"{what} ({innermost.co_filename}:{line})"


def _is_user_file(filename: str) -> bool:
    return not filename.startswith(_NOT_USER_CODE) and _GENERATED_FILE not in filename


# What the symbols of a user's module must look like, and the words for those that do not.
#
# `model_check` reads the module's text and `model_def` imports it; both say the same through here.


@dataclass(frozen=True, slots=True)
class SymbolRule:
    """One symbol of the contract.

    Attributes:
        field: Its field in `SymbolNames` and `ModelDef`, and its flag.
        call: How it is called, for people.
        num_arguments: The positional arguments it is called with; None where that is not checked.
        returns: What it gives back, for people.
        required: Whether a module without it is an error.
        on_request: Names that it is called with too, as keywords, where its signature has them.
    """

    field: str
    call: str
    num_arguments: int | None
    returns: str
    required: bool = False
    on_request: tuple[str, ...] = ()


MODEL_FIELD: Final = "model_def"

TOTAL_STEPS: Final = "total_steps"
"""How many updates the job will make, for those who plan a rate over all of them."""

KERAS_OPTIMIZER: Final = SymbolRule(
    "optimizer",
    "optimizer()",
    0,
    "a keras.optimizers.Optimizer",
    required=True,
    on_request=(TOTAL_STEPS,),
)
TORCH_OPTIMIZER: Final = SymbolRule(
    "optimizer",
    "optimizer(parameters)",
    1,
    "a torch.optim.Optimizer",
    required=True,
    on_request=(TOTAL_STEPS,),
)
DATASET_FN: Final = SymbolRule(
    "dataset_fn", "dataset_fn(dataset, mode)", 2, "(features, labels) pairs"
)
"""Needed unless there is a `batch_fn`, which then is what is used."""

RULES: Final = (
    SymbolRule("loss", "loss(labels, predictions)", 2, "a scalar tensor", required=True),
    DATASET_FN,
    SymbolRule("batch_fn", "batch_fn(columns, mode)", 2, "(features, labels) of a minibatch"),
    SymbolRule("eval_metrics_fn", "eval_metrics_fn()", 0, "a dict of metrics by name"),
    SymbolRule("callbacks", "callbacks()", 0, "a list of callbacks"),
    SymbolRule(
        "custom_data_reader",
        "custom_data_reader(data_origin, records_per_task, **params)",
        2,
        "a reader of records",
    ),
    SymbolRule(
        "prediction_outputs_processor", "PredictionOutputsProcessor()", 0, "a processor of outputs"
    ),
    SymbolRule(
        "lr_scheduler",
        "lr_scheduler(optimizer)",
        1,
        "a torch LRScheduler",
        on_request=(TOTAL_STEPS,),
    ),
)
"""Every symbol but the model and the optimizer, which is called differently by framework."""

PREPARE_DATA: Final = SymbolRule(
    "prepare_data", "prepare_data(source, **params)", 1, "records, as a generator", required=True
)
"""For `elastic data convert` only: jobs neither need it nor look at it."""

_PREDICTION_NAMES: Final = frozenset({"predictions", "prediction", "outputs", "output", "logits"})
_LABEL_NAMES: Final = frozenset({"labels", "label", "targets", "target", "y_true"})


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a function can be called with, read from its text or from the function itself.

    Attributes:
        positional: Names that a positional argument can fill, in order.
        num_required: How many of `positional` have no default.
        varargs: The name behind `*`, or None.
        required_keywords: Keyword-only names without a default.
        varkw: The name behind `**`, or None.
    """

    positional: tuple[str, ...]
    num_required: int
    varargs: str | None = None
    required_keywords: tuple[str, ...] = ()
    varkw: str | None = None

    def accept(self, num_arguments: int) -> bool:
        """Whether a call with that many positional arguments can be made."""
        fits = self.varargs is not None or num_arguments <= len(self.positional)
        return self.num_required <= num_arguments and fits and not self.required_keywords

    def without(self, names: Sequence[str]) -> "Parameters":
        """What is left to be filled where some are given by their names."""
        required = self.positional[: self.num_required]
        return replace(
            self,
            positional=tuple(name for name in self.positional if name not in names),
            num_required=sum(name not in names for name in required),
            required_keywords=tuple(name for name in self.required_keywords if name not in names),
        )

    def __str__(self) -> str:
        parts = [
            name if index < self.num_required else f"{name}=…"
            for index, name in enumerate(self.positional)
        ]
        if self.varargs is not None:
            parts.append(f"*{self.varargs}")
        elif self.required_keywords:
            parts.append("*")
        parts += self.required_keywords
        if self.varkw is not None:
            parts.append(f"**{self.varkw}")
        return f"({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """Where the module of a model_def lies.

    Attributes:
        name: Dotted name below the model zoo.
        symbol: The model's attribute in it.
        path: The file.
    """

    name: str
    symbol: str
    path: Path


def find_module(model_zoo: Path, model_def: str) -> ModuleFile:
    """Find the file behind `model_def` without importing anything.

    Raises:
        ModelDefError: `model_def` is no dotted name, or the folder or file is missing.
    """
    module_name, _, symbol = model_def.rpartition(".")
    if not all(part.isidentifier() for part in model_def.split(".")) or not module_name:
        raise ModelDefError(
            f"--model_def {model_def} is not of the form package.module.Symbol: "
            "give the module's dotted name below --model_zoo, then the model's name in it"
        )
    if not is_dir(model_zoo):
        raise ModelDefError(
            f"--model_zoo {model_zoo} is not a folder: give the folder that holds "
            f"{module_name.replace('.', '/')}.py"
        )
    model_zoo = model_zoo.absolute()
    base = model_zoo.joinpath(*module_name.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    for path in candidates:
        if path.is_file():
            return ModuleFile(module_name, symbol, path)
    raise ModelDefError(
        f"--model_def {model_def} names the module {module_name}, but neither {candidates[1]} "
        f"nor {candidates[0]} is there{_similar_modules(model_zoo, base)}"
    )


def _similar_modules(model_zoo: Path, base: Path) -> str:
    """Hint at files that may be meant: the same name elsewhere, or a similar one in its place."""
    elsewhere = sorted(model_zoo.rglob(f"{base.name}.py"))
    siblings = {path.stem: path for path in base.parent.glob("*.py")}
    near = nearest(base.name, siblings)
    found = elsewhere[0] if elsewhere else siblings[near] if near else None
    if found is None:
        return ""
    dotted = ".".join(found.relative_to(model_zoo).with_suffix("").parts)
    return f"; did you mean {dotted}?"


def import_failed(module: ModuleFile, error: BaseException, where: str) -> ModelDefError:
    """The module raised while it was imported, or is not Python.

    Args:
        where: `file:line` of the user's code that raised.
    """
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return ModelDefError(
        f"module {module.name} cannot be imported: {type(error).__name__}: {text} ({where})"
        + _missing_package_hint(error)
        + read_only_advice(error)
    )


def _missing_package_hint(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    package = error.name.partition(".")[0]
    extra = {"torch": "torch", "tensorflow": "tensorflow", "keras": "tensorflow"}.get(package)
    return "" if extra is None else f": {install_hint(extra)}"


def install_hint(extra: str) -> str:
    """How to get a framework."""
    return f"install it with {pip_install(extra)}"


def name_taken(module: ModuleFile, holder: str) -> ModelDefError:
    """Another module of that name comes first."""
    return ModelDefError(
        f"module {module.name} should be {module.path}, but Python finds {holder} under that "
        "name: rename the module or its folder"
    )


def missing_symbol(
    module: ModuleFile, rule: SymbolRule, name: str, present: Iterable[str]
) -> ModelDefError:
    """A symbol is not in the module."""
    or_columns = ", or batch_fn(columns, mode)" if rule is DATASET_FN else ""
    typo = _typo(name, present)
    return ModelDefError(
        f"module {module.name} ({module.path}) has no {name}: define {rule.call} that returns "
        f"{rule.returns}{or_columns}, or say with --{rule.field} which symbol it is{typo}"
    )


def missing_model(module: ModuleFile, present: Iterable[str]) -> ModelDefError:
    """The model itself is not in the module."""
    return ModelDefError(
        f"module {module.name} ({module.path}) has no {module.symbol}: define it as a "
        "keras.Model or torch.nn.Module class, or as a function that returns one, or name "
        f"another symbol in --model_def{_typo(module.symbol, present)}"
    )


def _typo(name: str, present: Iterable[str]) -> str:
    public = [other for other in present if not other.startswith("__")]
    near = nearest(name, public)
    return f"; did you mean {near}?" if near else ""


def not_callable(module: ModuleFile, name: str, rule: SymbolRule, kind: str) -> ModelDefError:
    """A symbol is a value where a function is wanted."""
    return ModelDefError(
        f"{name} of module {module.name} ({module.path}) is of type {kind}, not a function: "
        f"define {rule.call} that returns {rule.returns}"
    )


def model_not_buildable(module: ModuleFile, what: str) -> ModelDefError:
    """The model's symbol is neither a model class nor a function."""
    return ModelDefError(
        f"{module.symbol} of module {module.name} ({module.path}) {what}: make it a subclass of "
        "keras.Model or torch.nn.Module, or a function that returns a model"
    )


def check_signature(
    name: str, parameters: Parameters, where: str, allowed: tuple[SymbolRule, ...]
) -> None:
    """Check that a function can be called as one of the rules says.

    Args:
        where: `file:line` of the function.
        allowed: The rules of which one must hold; more than one while the framework is unknown.

    Raises:
        ModelDefError: It cannot, or a loss has its arguments the other way round.
    """
    calls = " or ".join(rule.call for rule in allowed)
    if not any(
        rule.num_arguments is None or parameters.without(rule.on_request).accept(rule.num_arguments)
        for rule in allowed
    ):
        raise ModelDefError(
            f"{name}{parameters} ({where}) cannot be called as {calls}: change its parameters"
        )
    first, second = (*parameters.positional, "", "")[:2]
    if allowed[0].field == "loss" and first in _PREDICTION_NAMES and second in _LABEL_NAMES:
        raise ModelDefError(
            f"{name}{parameters} ({where}) takes the predictions first, but is called as {calls}: "
            "swap its parameters"
        )


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
            exception is the cause, and `user_traceback` gives its text.
    """
    file = find_module(model_zoo, model_def)
    module = _import_module(model_zoo.absolute(), file)
    present = dir(module)
    model = getattr(module, file.symbol, None)
    if model is None:
        raise missing_model(file, present)
    functions = {
        rule.field: _resolve(file, module, rule, getattr(names, rule.field), present)
        for rule in (KERAS_OPTIMIZER, *RULES)
    }
    if functions["dataset_fn"] is None and functions["batch_fn"] is None:
        raise missing_symbol(file, DATASET_FN, names.dataset_fn, present)
    framework = _detect_framework(file, module, model, functions)
    optimizer = {"keras": KERAS_OPTIMIZER, "torch": TORCH_OPTIMIZER}[framework]
    for rule in (optimizer, *RULES):
        # Keras has its own schedules, so there the name is the user's to take.
        if framework == "keras" and rule.field == "lr_scheduler":
            functions["lr_scheduler"] = None
            continue
        _check_function(file, getattr(names, rule.field), functions[rule.field], rule)
    optional = {rule.field: functions[rule.field] for rule in RULES if not rule.required}
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
    file = find_module(model_zoo, model_def)
    module = _import_module(model_zoo.absolute(), file)
    function = getattr(module, name, None)
    if function is None:
        raise missing_symbol(file, rule, name, dir(module))
    if not callable(function):
        raise not_callable(file, name, rule, type(function).__name__)
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
            raise name_taken(file, "another package") from error
        raise import_failed(file, error, where_raised(error, str(file.path))) from error
    except (Exception, SystemExit) as error:
        raise import_failed(file, error, where_raised(error, str(file.path))) from error
    vars(sys.modules[file.name.partition(".")[0]])["__model_zoo__"] = model_zoo
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != file.path.resolve():
        raise name_taken(file, found or "a built-in module")
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
        raise missing_symbol(file, rule, name, present)
    if function is not None and not callable(function):
        raise not_callable(file, name, rule, type(function).__name__)
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
    check_signature(name, _parameters(signature), where, (rule,))


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
            raise model_not_buildable(file, "is a model already")
    if isinstance(model, type):
        raise model_not_buildable(file, "is a class of neither framework")
    if not callable(model):
        raise model_not_buildable(file, f"is of type {type(model).__name__}")
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
