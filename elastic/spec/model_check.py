"""The contract of a user's module, checked on its text; and which model a folder holds.

The command line runs this at submission, where no framework may be installed: nothing is
imported, so what only running the module can tell is left to `load_model_def`. Where nobody says
which model is meant, it is looked for in the text of a folder's modules.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elastic.errors import ModelDefError
from elastic.spec import model_def as contract
from elastic.spec.model_def import ModuleFile, Parameters, SymbolNames, SymbolRule, is_needed
from elastic.spec.values import path_exists

_LITERALS: Final = {
    ast.List: "list",
    ast.Dict: "dict",
    ast.Set: "set",
    ast.Tuple: "tuple",
    ast.JoinedStr: "str",
}
_FRAMEWORK_OF_PACKAGE: Final = {"torch": "torch", "keras": "keras", "tensorflow": "keras"}
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
_FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_USUAL_NAMES: Final = ("CustomModel", "custom_model")
_BASES: Final = frozenset({"Module", "Model", "Sequential"})
"""How the bases of models end: `nn.Module`, `keras.Model`."""


@dataclass(slots=True)
class _Names:
    """What the statements of a module bind.

    Attributes:
        bound: The node behind each name, or None where it cannot be judged.
        is_complete: False where more names may appear when the module runs.
    """

    bound: dict[str, ast.AST | None] = field(default_factory=dict)
    is_complete: bool = True

    def bind(self, name: str, node: ast.AST | None) -> None:
        # Which of two definitions wins can depend on a condition, so neither is judged.
        self.bound[name] = None if name in self.bound else node


def is_in_image(image: str, model_zoo: Path) -> bool:
    """Whether only a job's ready image holds the model, so that nobody can check it here.

    Args:
        image: The ready image, or nothing where one is built.
    """
    return bool(image) and not path_exists(model_zoo)


def check_source(model_zoo: Path, model_def: str, names: SymbolNames) -> None:
    """Check a user's module without importing it.

    Raises:
        ModelDefError: What `load_model_def` would say, as far as the text shows it.
    """
    module = contract.find_module(model_zoo, model_def)
    try:
        tree = ast.parse(module.path.read_bytes(), filename=str(module.path))
    except SyntaxError as error:
        where = f"{module.path}:{error.lineno or 1}"
        raise contract.import_failed(module, error, where) from error
    found = _Names()
    for statement in _module_statements(tree.body):
        _bind_names(statement, found)
    _check_model(module, found)
    check_callbacks(tree, names.callbacks)
    optimizers = _optimizer_rules(tree)
    _check_symbol(module, found, names, optimizers)
    for rule in contract.RULES:
        _check_symbol(module, found, names, (rule,))
    if found.is_complete and not {names.dataset_fn, names.batch_fn} & found.bound.keys():
        raise contract.missing_symbol(module, contract.DATASET_FN, names.dataset_fn, found.bound)


def written_for(model_zoo: Path, model_def: str) -> str | None:
    """The framework of a checked module, by its imports; None where they do not tell.

    Raises:
        ModelDefError: The module is not there.
    """
    module = contract.find_module(model_zoo, model_def)
    rules = _optimizer_rules(ast.parse(module.path.read_bytes()))
    if len(rules) > 1:
        return None
    return "torch" if rules[0] is contract.TORCH_OPTIMIZER else "keras"


def may_have(model_zoo: Path, model_def: str, name: str) -> bool:
    """Whether a checked module binds a name; also where only running it can tell.

    Raises:
        ModelDefError: The module is not there.
    """
    module = contract.find_module(model_zoo, model_def)
    found = _Names()
    for statement in _module_statements(ast.parse(module.path.read_bytes()).body):
        _bind_names(statement, found)
    return name in found.bound or not found.is_complete


def definitions(path: Path) -> dict[str, ast.AST | None]:
    """What the statements of a module bind: name → its node, None where it cannot be judged.

    Raises:
        SyntaxError: It is not Python.
    """
    found = _Names()
    for statement in _module_statements(ast.parse(path.read_bytes(), filename=str(path)).body):
        _bind_names(statement, found)
    return found.bound


def _module_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run in the module's own scope, those inside if, try and loops too."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from _module_statements(getattr(statement, name, []))
        for handler in [*getattr(statement, "handlers", []), *getattr(statement, "cases", [])]:
            yield from _module_statements(handler.body)


def _bind_names(statement: ast.stmt, found: _Names) -> None:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            # A decorator may put anything in the place of what it decorates.
            found.bind(statement.name, None if statement.decorator_list else statement)
            if statement.name == "__getattr__":
                found.is_complete = False
        case ast.Import() | ast.ImportFrom():
            for alias in statement.names:
                if alias.name == "*":
                    found.is_complete = False
                found.bind(alias.asname or alias.name.partition(".")[0], None)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            found.bind(name, value)
        case ast.AnnAssign(target=ast.Name(id=name), value=value) if value is not None:
            found.bind(name, value)
        case _:
            _bind_anything(statement, found)


def _bind_anything(statement: ast.stmt, found: _Names) -> None:
    """Bind what other statements (unpacking, loops, with, :=, exec) may bring in."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.bound.setdefault(node.id, None)
        if isinstance(node, ast.Name) and node.id in {"globals", "exec", "vars", "setattr"}:
            found.is_complete = False


def _optimizer_rules(tree: ast.Module) -> tuple[SymbolRule, ...]:
    """The way an optimizer is called, as far as the imports tell the framework."""
    packages: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            packages |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            packages.add(node.module.partition(".")[0])
    frameworks = {_FRAMEWORK_OF_PACKAGE[name] for name in packages if name in _FRAMEWORK_OF_PACKAGE}
    if frameworks == {"torch"}:
        return (contract.TORCH_OPTIMIZER,)
    if frameworks == {"keras"}:
        return (contract.KERAS_OPTIMIZER,)
    return (contract.KERAS_OPTIMIZER, contract.TORCH_OPTIMIZER)


def _check_model(module: ModuleFile, found: _Names) -> None:
    if module.symbol not in found.bound:
        if found.is_complete:
            raise contract.missing_model(module, found.bound)
        return
    match found.bound[module.symbol]:
        case ast.ClassDef(bases=[], keywords=[]):
            raise contract.model_not_buildable(
                module, "is a class without a base class of a framework"
            )
        case ast.AST() as node:
            kind = _kind_of_literal(node)
            if kind is not None:
                raise contract.model_not_buildable(module, f"is of type {kind}")


def _check_symbol(
    module: ModuleFile, found: _Names, names: SymbolNames, rules: tuple[SymbolRule, ...]
) -> None:
    rule = rules[0]
    name = getattr(names, rule.field)
    if name not in found.bound:
        if found.is_complete and is_needed(rule, name):
            raise contract.missing_symbol(module, rule, name, found.bound)
        return
    node = found.bound[name]
    if node is None:
        return
    kind = _kind_of_literal(node)
    if kind is not None:
        raise contract.not_callable(module, name, rule, kind)
    if isinstance(node, _FunctionNode):
        where = f"{module.path}:{node.lineno}"
        contract.check_signature(name, _parameters(node.args), where, rules)


def _kind_of_literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    return _LITERALS.get(type(node))


def _parameters(arguments: ast.arguments) -> Parameters:
    positional = tuple(each.arg for each in [*arguments.posonlyargs, *arguments.args])
    return Parameters(
        positional=positional,
        num_required=len(positional) - len(arguments.defaults),
        varargs=arguments.vararg.arg if arguments.vararg else None,
        required_keywords=tuple(
            each.arg
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is None
        ),
        varkw=arguments.kwarg.arg if arguments.kwarg else None,
    )


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
