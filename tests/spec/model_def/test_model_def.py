import json.decoder
import sys
import textwrap

import pytest

from elastic.errors import ModelDefError
from elastic.spec.model_check import check_source
from elastic.spec.model_def import SymbolNames, load_model_def, user_traceback

TORCH_MODULE = """
    import torch

    class Net(torch.nn.Module):
        pass

    def loss(labels, predictions):
        return predictions.sum()

    def optimizer(parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    def dataset_fn(dataset, mode):
        return dataset
"""


class Zoo:
    """A model zoo in a folder of the test, whose modules are forgotten afterwards."""

    def __init__(self, path):
        self.path = path
        self.path.mkdir()

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def load(self, model_def="net.Net", **names):
        return load_model_def(self.path, model_def, SymbolNames(**names))

    def check(self, model_def="net.Net", **names):
        check_source(self.path, model_def, SymbolNames(**names))


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Zoo(tmp_path / "zoo")


def message_of(function, *args, **kwargs):
    with pytest.raises(ModelDefError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def assert_both_say(zoo, expected, model_def="net.Net", **names):
    """The check of the text and the import say the same."""
    assert message_of(zoo.check, model_def, **names) == expected
    assert message_of(zoo.load, model_def, **names) == expected


def test_a_torch_module_is_loaded_with_its_symbols(zoo):
    zoo.write("net.py", TORCH_MODULE + "\n    def eval_metrics_fn():\n        return {}\n")
    zoo.check()
    model_def = zoo.load()
    assert (model_def.framework, model_def.module_name) == ("torch", "net")
    assert model_def.model.__name__ == "Net"
    assert model_def.eval_metrics_fn is not None
    assert model_def.lr_scheduler is None


def test_flags_rename_symbols(zoo):
    zoo.write("net.py", TORCH_MODULE.replace("def loss", "def criterion"))
    zoo.check(loss="criterion")
    assert zoo.load(loss="criterion").loss.__name__ == "criterion"


def test_folders_without_init_are_packages(zoo):
    zoo.write("family/deep/net.py", TORCH_MODULE)
    assert zoo.load("family.deep.net.Net").module_name == "family.deep.net"


def test_modules_of_the_zoo_import_each_other(zoo):
    zoo.write("layers.py", "import torch\nclass Base(torch.nn.Module):\n    pass\n")
    text = TORCH_MODULE.replace("torch.nn.Module", "layers.Base")
    zoo.write("net.py", "import layers\n" + textwrap.dedent(text))
    assert zoo.load().framework == "torch"


def test_a_zoo_of_another_folder_is_not_mixed_up(zoo, tmp_path):
    zoo.write("net.py", TORCH_MODULE)
    first = zoo.load().model
    other = Zoo(tmp_path / "other")
    other.write("net.py", TORCH_MODULE)
    assert other.load().model is not first


def test_missing_folder(tmp_path):
    missing = tmp_path / "nowhere"
    expected = f"--model_zoo {missing} is not a folder: give the folder that holds a/net.py"
    names = SymbolNames()
    assert message_of(load_model_def, missing, "a.net.Net", names) == expected
    assert message_of(check_source, missing, "a.net.Net", names) == expected


def test_missing_file_names_the_paths_and_a_similar_module(zoo):
    zoo.write("pkg/net.py", TORCH_MODULE)
    assert_both_say(
        zoo,
        f"--model_def net.Net names the module net, but neither {zoo.path}/net.py nor "
        f"{zoo.path}/net/__init__.py is there; did you mean pkg.net?",
    )
    assert_both_say(
        zoo,
        f"--model_def pkg.nett.Net names the module pkg.nett, but neither {zoo.path}/pkg/nett.py "
        f"nor {zoo.path}/pkg/nett/__init__.py is there; did you mean pkg.net?",
        "pkg.nett.Net",
    )


@pytest.mark.parametrize("model_def", ["Net", "a-b.Net", "net."])
def test_malformed_model_def(zoo, model_def):
    assert_both_say(
        zoo,
        f"--model_def {model_def} is not of the form package.module.Symbol: "
        "give the module's dotted name below --model_zoo, then the model's name in it",
        model_def,
    )


def test_syntax_error_names_its_line(zoo):
    path = zoo.write("net.py", "x = 1\ndef broken(:\n")
    assert_both_say(zoo, f"module net cannot be imported: SyntaxError: invalid syntax ({path}:2)")


def test_import_error_names_the_users_line_and_keeps_the_traceback(zoo):
    path = zoo.write("net.py", "import helper\n")
    helper = zoo.write("helper.py", "import json\n\njson.loads('{')\n")
    with pytest.raises(ModelDefError) as caught:
        zoo.load()
    assert str(caught.value) == (
        "module net cannot be imported: JSONDecodeError: Expecting property name enclosed in "
        f"double quotes: line 1 column 2 (char 1) ({helper}:3)"
    )
    text = user_traceback(caught.value)
    assert text.startswith(f'Traceback (most recent call last):\n  File "{path}", line 1')
    assert text.endswith("line 1 column 2 (char 1)")


def test_an_exit_while_importing_is_an_error(zoo):
    path = zoo.write("net.py", "import sys\nsys.exit(3)\n")
    assert message_of(zoo.load) == f"module net cannot be imported: SystemExit: 3 ({path}:2)"


@pytest.mark.parametrize(
    ("package", "extra"), [("torch", "torch"), ("keras", "tensorflow"), ("nowhere", None)]
)
def test_a_framework_that_is_not_installed(zoo, monkeypatch, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    path = zoo.write("net.py", f"import {package}\n")
    hint = f": install it with pip install {extra}" if extra else ""
    assert message_of(zoo.load) == (
        f"module net cannot be imported: ModuleNotFoundError: import of {package} halted; None in "
        f"sys.modules ({path}:1){hint}"
    )


def test_a_name_that_another_package_has(zoo):
    path = zoo.write("json/net.py", TORCH_MODULE)
    assert message_of(zoo.load, "json.net.Net") == (
        f"module json.net should be {path}, but Python finds another package under that name: "
        "rename the module or its folder"
    )
    path = zoo.write("json/decoder.py", TORCH_MODULE)
    assert message_of(zoo.load, "json.decoder.Net") == (
        f"module json.decoder should be {path}, but Python finds {json.decoder.__file__} under "
        "that name: rename the module or its folder"
    )


def test_missing_symbols(zoo):
    path = zoo.write("net.py", TORCH_MODULE.replace("def loss", "def lss"))
    assert_both_say(
        zoo,
        f"module net ({path}) has no loss: define loss(labels, predictions) that returns a scalar "
        "tensor, or say with --loss which symbol it is; did you mean lss?",
    )
    assert_both_say(
        zoo,
        f"module net ({path}) has no Nett: define it as a keras.Model or torch.nn.Module class, "
        "or as a function that returns one, or name another symbol in --model_def; did you mean "
        "Net?",
        "net.Nett",
    )
    assert_both_say(
        zoo,
        f"module net ({path}) has no schedule: define lr_scheduler(optimizer) that returns a "
        "torch LRScheduler, or say with --lr_scheduler which symbol it is",
        loss="lss",
        lr_scheduler="schedule",
    )


def test_values_where_functions_are_wanted(zoo):
    path = zoo.write(
        "net.py", TORCH_MODULE.replace("def loss", "def criterion") + "\n    loss = 3\n"
    )
    assert_both_say(
        zoo,
        f"loss of module net ({path}) is of type int, not a function: define loss(labels, "
        "predictions) that returns a scalar tensor",
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        pytest.param(
            "loss(labels, predictions)",
            "loss(labels)",
            7,
            "loss(labels) ({where}) cannot be called as loss(labels, predictions): change its "
            "parameters",
            id="loss-takes-two",
        ),
        pytest.param(
            "loss(labels, predictions)",
            "loss(output, labels)",
            7,
            "loss(output, labels) ({where}) takes the predictions first, but is called as "
            "loss(labels, predictions): swap its parameters",
            id="loss-takes-labels-first",
        ),
        pytest.param(
            "loss(labels, predictions)",
            "loss(labels, predictions, *, weight, bias=0, **rest)",
            7,
            "loss(labels, predictions, *, weight, **rest) ({where}) cannot be called as "
            "loss(labels, predictions): change its parameters",
            id="loss-has-nothing-else-to-ask",
        ),
        pytest.param(
            "dataset_fn(dataset, mode)",
            "dataset_fn(dataset, mode, metadata, x=1)",
            13,
            "dataset_fn(dataset, mode, metadata, x=…) ({where}) cannot be called as "
            "dataset_fn(dataset, mode): change its parameters",
            id="dataset-fn-takes-two",
        ),
        pytest.param(
            "optimizer(parameters)",
            "optimizer()",
            10,
            "optimizer() ({where}) cannot be called as optimizer(parameters): change its "
            "parameters",
            id="torch-optimizer-takes-parameters",
        ),
        pytest.param(
            "loss(labels, predictions)",
            "loss(labels, predictions, total_steps)",
            7,
            "loss(labels, predictions, total_steps) ({where}) cannot be called as loss(labels, "
            "predictions): change its parameters",
            id="only-who-makes-updates-may-ask",
        ),
    ],
)
def test_wrong_signatures(zoo, old, new, line, expected):
    path = zoo.write("net.py", TORCH_MODULE.replace(old, new))
    assert_both_say(zoo, expected.format(where=f"{path}:{line}"))


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param("loss = torch.nn.functional.mse_loss", id="c-or-library-function"),
        pytest.param("loss = lambda labels, predictions: predictions", id="lambda"),
        pytest.param("def loss(*arguments): return 0", id="varargs"),
        pytest.param("def loss(labels, predictions, weight=1): return 0", id="defaults"),
        pytest.param("from os.path import relpath as loss", id="import"),
        pytest.param(
            "def custom_data_reader(data_origin, records_per_task=None, **kw): pass", id="r"
        ),
        pytest.param("def lr_scheduler(optimizer, total_steps): pass", id="asks-for-total-steps"),
        pytest.param("def lr_scheduler(optimizer, *, total_steps): pass", id="asks-by-keyword"),
        pytest.param("def optimizer(parameters, total_steps): pass", id="optimizer-asks"),
    ],
)
def test_accepted_signatures(zoo, lines):
    zoo.write("net.py", textwrap.dedent(TORCH_MODULE) + lines + "\n")
    zoo.check()
    zoo.load()


def test_a_reader_with_too_few_parameters(zoo):
    reader = "\n    def custom_data_reader(data_origin):\n        pass\n"
    path = zoo.write("net.py", TORCH_MODULE + reader)
    assert_both_say(
        zoo,
        f"custom_data_reader(data_origin) ({path}:16) cannot be called as "
        "custom_data_reader(data_origin, records_per_task, **params): change its parameters",
    )


def test_a_class_of_no_framework(zoo):
    path = zoo.write("net.py", TORCH_MODULE.replace("(torch.nn.Module)", ""))
    rest = (
        "make it a subclass of keras.Model or torch.nn.Module, or a function that returns a model"
    )
    start = f"Net of module net ({path})"
    assert message_of(zoo.load) == f"{start} is a class of neither framework: {rest}"
    assert message_of(zoo.check) == (
        f"{start} is a class without a base class of a framework: {rest}"
    )


def test_a_model_object_is_refused(zoo):
    path = zoo.write("net.py", TORCH_MODULE + "\n    model = torch.nn.Linear(1, 1)\n")
    zoo.check("net.model")
    assert message_of(zoo.load, "net.model") == (
        f"model of module net ({path}) is a model already: make it a subclass of keras.Model or "
        "torch.nn.Module, or a function that returns a model"
    )


FUNCTION_MODULE = """
    import torch
    import keras

    def make():
        return {made}

    def loss(labels, predictions):
        return predictions

    def optimizer({parameters}):
        return {optimizer}

    def dataset_fn(dataset, mode):
        return dataset
"""


@pytest.mark.parametrize(
    ("made", "parameters", "optimizer", "expected"),
    [
        ("keras.Sequential()", "", "keras.optimizers.SGD()", "keras"),
        ("torch.nn.Linear(1, 1)", "p", "torch.optim.SGD(p)", "torch"),
        ("helper()", "p", "torch.optim.SGD(p)", "torch"),
        ("helper()", "", "keras.optimizers.SGD()", "keras"),
    ],
)
def test_a_function_tells_by_what_it_uses(zoo, made, parameters, optimizer, expected):
    text = FUNCTION_MODULE.format(made=made, parameters=parameters, optimizer=optimizer)
    zoo.write("net.py", text)
    zoo.check("net.make")
    assert zoo.load("net.make").framework == expected


def test_a_function_that_tells_nothing(zoo):
    text = FUNCTION_MODULE.format(made="helper()", parameters="p=0", optimizer="helper(p)")
    path = zoo.write("net.py", text)
    assert message_of(zoo.load, "net.make") == (
        f"module net ({path}) does not show whether make is a Keras or a torch model: make it a "
        "class derived from keras.Model or torch.nn.Module"
    )


def test_keras_users_may_call_anything_lr_scheduler(zoo):
    text = FUNCTION_MODULE.format(
        made="keras.Sequential()", parameters="", optimizer="keras.optimizers.SGD()"
    )
    zoo.write(
        "net.py", text + "\n    lr_scheduler = keras.optimizers.schedules.CosineDecay(1., 9)\n"
    )
    assert zoo.load("net.make").lr_scheduler is None


def test_star_imports_may_bring_any_name(zoo):
    zoo.write("parts.py", TORCH_MODULE)
    zoo.write("net.py", "from parts import *\n")
    zoo.check()
    zoo.load()


def test_names_bound_in_branches_count(zoo):
    text = textwrap.dedent(TORCH_MODULE).replace("def loss(labels, predictions)", "def other(a)")
    zoo.write(
        "net.py",
        text + "try:\n    from missing import loss\nexcept ImportError:\n    loss = print\n",
    )
    zoo.check()
    zoo.load()
