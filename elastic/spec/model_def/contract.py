"""What the symbols of a user's module must look like, and the words for those that do not.

`model_check` reads the module's text and `model_def` imports it; both say the same through here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from elastic.errors import ModelDefError
from elastic.spec.names import nearest
from elastic.spec.user_frames import read_only_advice
from elastic.spec.values.packages import pip_install
from elastic.spec.values.paths import is_dir


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
