"""The line between this project and the user's functions: their exceptions become ours."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import ml_dtypes
import numpy as np

from elastic.callbacks import HOOKS, Callback
from elastic.errors import ElasticError, ModelDefError
from elastic.frameworks.base import Array, Batch
from elastic.policy.minibatches import FaultSearch
from elastic.policy.tasks.records import Columns
from elastic.spec.model_def import TOTAL_STEPS, ModelDef, error_text
from elastic.spec.platforms import Mode

MAX_EXAMPLES_PER_RECORD: Final = 100
MAX_EXAMPLES_BESIDE: Final = 10_000
"""A dataset_fn that makes more of one minibatch is taken for endless: a record may become many, as
a long text that is cut into windows, but memory ends."""

MAX_FIELDS: Final = 20
"""Told of a record; a table may have hundreds."""


@contextmanager
def user_code(what: str | Callable[[], str]) -> Iterator[None]:
    """Turn an exception of the user's code into a `ModelDefError` that says what failed.

    Running out of memory is the machine's answer to the job's size and passes as it is.

    Args:
        what: It, or who is asked for it once it has failed.
    """
    try:
        yield
    except (ElasticError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        raise ModelDefError(f"{named(what)} failed: {error_text(error)}") from error


def named(what: str | Callable[[], str]) -> str:
    """What has failed, for people."""
    return what if isinstance(what, str) else what()


@contextmanager
def dataset_code(records: Sequence[Any]) -> Iterator[None]:
    """`user_code` for `dataset_fn`: where it looked for what is not there, say what a record is."""
    try:
        with user_code("dataset_fn"):
            yield
    except ModelDefError as error:
        cause = error.__cause__
        if records and cause is not None and _may_be_of_a_record(cause):
            raise ModelDefError(f"{error}; a record is {_told(records[0])}") from cause
        raise


@contextmanager
def batch_code(columns: Columns) -> Iterator[None]:
    """`user_code` for `batch_fn`: where it looked for what is not there, say what there is."""
    try:
        with user_code("batch_fn"):
            yield
    except ModelDefError as error:
        cause = error.__cause__
        if cause is not None and _may_be_of_a_record(cause):
            raise ModelDefError(f"{error}; the columns are {_told_columns(columns)}") from cause
        raise


def run_batch_fn(
    model_def: ModelDef,
    columns: Columns,
    mode: Mode,
    to_tensor: Callable[[Any], Any],
    size_of: Callable[[Any], int | None],
) -> Batch:
    """What `batch_fn` makes of the columns of one minibatch.

    Args:
        model_def: Has a `batch_fn`.
        columns: Of the records of exactly one minibatch.
        mode: What it is asked for.
        to_tensor: A tensor of the framework for a leaf of what it gives, or the leaf itself.
        size_of: The first dimension of such a leaf; None where it has none.

    Raises:
        ModelDefError: It failed, or gave something else than features and labels of one size.
    """
    assert model_def.batch_fn is not None, "columns are read where there is a batch_fn"
    if not len(columns):
        return Batch(None, None, 0)
    with batch_code(columns):
        # A dict of its own, which may be changed as the arrays may.
        made = model_def.batch_fn(dict(columns.arrays), mode)
    is_pair = isinstance(made, tuple) and len(made) == 2
    if not is_pair and mode is not Mode.PREDICTION:
        size = f" of {len(made)}" if isinstance(made, (tuple, list)) else ""
        raise ModelDefError(
            f"batch_fn gave a {type(made).__name__}{size} in mode {mode.value}: return a tuple "
            "(features, labels), whose first dimension is that of the columns"
        )
    features, labels = made if is_pair else (made, None)
    with batch_code(columns):
        features, labels = _mapped(features, to_tensor), _mapped(labels, to_tensor)
    found = [size_of(leaf) for leaf in leaves((features, labels)) if leaf is not None]
    sizes = [size for size in found if size is not None]
    if not sizes or len(sizes) < len(found) or len(set(sizes)) > 1:
        told = ", ".join("none" if size is None else str(size) for size in dict.fromkeys(found))
        raise ModelDefError(
            f"batch_fn gave features and labels with first dimensions of {told or 'none'}, of "
            f"{len(columns)} records: all arrays need one for each example, and the same number"
        )
    if sizes[0] > max_examples(len(columns)):
        raise too_many_examples(len(columns), "batch_fn")
    return Batch(features, labels, sizes[0]) if sizes[0] else Batch(None, None, 0)


def _mapped(structure: Any, function: Callable[[Any], Any]) -> Any:
    """A nested structure with what a function makes of each of its leaves; None stays."""
    match structure:
        case None:
            return None
        case Mapping():
            return {name: _mapped(value, function) for name, value in structure.items()}
        case tuple() if hasattr(structure, "_fields"):
            return type(structure)(*(_mapped(value, function) for value in structure))
        case tuple() | list():
            return type(structure)(_mapped(value, function) for value in structure)
    return function(structure)


def _told_columns(columns: Columns) -> str:
    names = list(columns.arrays)
    more = f" and {len(names) - MAX_FIELDS} more" if len(names) > MAX_FIELDS else ""
    return f"{', '.join(names[:MAX_FIELDS])}{more}"


def _may_be_of_a_record(error: BaseException) -> bool:
    """Whether something was looked for, or called, that an object does not have."""
    if isinstance(error, AttributeError):
        return not isinstance(error.obj, ModuleType)
    return isinstance(error, (LookupError, TypeError))


def _told(record: Any) -> str:
    """`a dict with the fields x, y` or `a tuple of 5`."""
    match record:
        case Mapping():
            names = [str(name) for name in record]
            more = f" and {len(names) - MAX_FIELDS} more" if len(names) > MAX_FIELDS else ""
            return f"a dict with the fields {', '.join(names[:MAX_FIELDS])}{more}"
        case list() | tuple():
            return f"a {type(record).__name__} of {len(record)}"
        case np.ndarray():
            return f"an array of shape {record.shape}"
    return f"a {type(record).__name__}"


def embeddings_alone(name: str) -> ModelDefError:
    """A model without a parameter of its own: an optimizer needs one, and so has a version."""
    return ModelDefError(
        f"the model {name} has rows of embeddings to train and nothing else: give it a layer with "
        "parameters, such as a dense one of the embeddings' sum"
    )


def asked_for(function: Callable[..., Any], what: str, total_steps: int | None) -> dict[str, int]:
    """The keyword arguments that the user's function has in its signature by our names.

    Args:
        function: The user's.
        what: What it is called, for people.
        total_steps: Updates that the job will make; None where nobody knows.

    Raises:
        ModelDefError: It asks for what nobody knows.
    """
    try:
        is_asked = TOTAL_STEPS in inspect.signature(function).parameters
    except (TypeError, ValueError):
        # Some functions written in C do not tell.
        return {}
    if not is_asked:
        return {}
    if total_steps is None:
        raise ModelDefError(f"{what} asks for {TOTAL_STEPS}, which is known in a job only")
    return {TOTAL_STEPS: total_steps}


def part_that_runs(
    sample: Batch, rows: Callable[[Batch, int, int], Batch], run: Callable[[Batch], None]
) -> Batch:
    """Run the user's code over the first examples, and give the largest part of them that runs.

    Where the whole fails and all of its parts run, its size is to blame: that is for training to
    find, on the machine that trains, which says the size that runs or goes on with it.

    Args:
        sample: At least one example.
        rows: Gives the examples `[start, end)` of a batch.
        run: Raises where the user's code fails.

    Raises:
        ModelDefError: It fails on one example too; what it said of the whole.
        MemoryError: The same.
    """
    try:
        run(sample)
    except (ModelDefError, MemoryError):
        part = _part_that_runs(sample, rows, run)
        if part is None:
            raise
        return part
    return sample


def _part_that_runs(
    sample: Batch, rows: Callable[[Batch, int, int], Batch], run: Callable[[Batch], None]
) -> Batch | None:
    """The first of the largest parts that run, where all do."""
    if sample.num_examples < 2:
        return None
    search = FaultSearch(0, sample.num_examples)
    while (part := search.next_part()) is not None:
        try:
            run(rows(sample, *part))
        except (ModelDefError, MemoryError):
            search.tell(*part, has_failed=True)
        else:
            search.tell(*part, has_failed=False)
    return None if search.culprit is not None else rows(sample, 0, search.runs_at)


def leaves(structure: Any) -> Iterator[Any]:
    """The leaves of a nested dict, list or tuple, in order."""
    match structure:
        case Mapping():
            for value in structure.values():
                yield from leaves(value)
        case list() | tuple():
            for value in structure:
                yield from leaves(value)
        case _:
            yield structure


def predicted_arrays(
    outputs: Any, num_examples: int, to_array: Callable[[Any], Array | None]
) -> Any:
    """A model's outputs with NumPy arrays for tensors.

    Args:
        outputs: A tensor, or a nested dict, list or tuple of them.
        num_examples: What the first dimension of each must be.
        to_array: An array for a tensor of the framework, None for anything else.

    Raises:
        ModelDefError: There is something else in it, or the first dimension is another.
    """
    match outputs:
        case Mapping():
            return {k: predicted_arrays(v, num_examples, to_array) for k, v in outputs.items()}
        case list() | tuple():
            return [predicted_arrays(v, num_examples, to_array) for v in outputs]
    array = to_array(outputs)
    if array is None:
        raise ModelDefError(
            f"the model gives a {type(outputs).__name__} as prediction: return a tensor, or a "
            "dict, list or tuple of them"
        )
    if array.shape[:1] != (num_examples,):
        raise ModelDefError(
            f"the model gives a prediction of shape {list(array.shape)} for {num_examples} "
            "examples: its first dimension must count them"
        )
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    return array


def max_examples(num_records: int) -> int:
    """How many examples `dataset_fn` may make of the records of one minibatch."""
    return MAX_EXAMPLES_PER_RECORD * num_records + MAX_EXAMPLES_BESIDE


def too_many_examples(num_records: int, function: str = "dataset_fn") -> ModelDefError:
    """It has made more, and may never end."""
    return ModelDefError(
        f"{function} has made more than {max_examples(num_records)} examples of the {num_records} "
        "records of one minibatch, and seems to have no end: go through them once, epochs are "
        "counted by the job"
    )


def check_pair(element: Any, mode: Mode) -> None:
    """Check that one element of `dataset_fn` is what the mode needs.

    Raises:
        ModelDefError: It is no (features, labels) pair though the mode has labels.
    """
    if mode is Mode.PREDICTION or (isinstance(element, tuple) and len(element) == 2):
        return
    size = f" of {len(element)}" if isinstance(element, (tuple, list)) else ""
    raise ModelDefError(
        f"dataset_fn gave a {type(element).__name__}{size} in mode {mode.value}: every element "
        "must be a tuple (features, labels)"
    )


def metric_functions(
    eval_metrics_fn: Any, is_object: Callable[[Any], bool] = callable
) -> dict[str, Any]:
    """Call the user's `eval_metrics_fn` and check its answer.

    Args:
        eval_metrics_fn: The user's, or None.
        is_object: Whether something is a metric object of the framework.

    Raises:
        ModelDefError: It failed, or gave something else than a dict of metrics by name.
    """
    if eval_metrics_fn is None:
        return {}
    with user_code("eval_metrics_fn"):
        metrics = eval_metrics_fn()
    if not isinstance(metrics, Mapping):
        raise ModelDefError(
            f"eval_metrics_fn returned a {type(metrics).__name__}: return a dict of metrics by name"
        )
    for name, metric in metrics.items():
        if name == "loss":
            raise ModelDefError(
                "eval_metrics_fn names a metric 'loss', which the loss itself is called: rename it"
            )
        if isinstance(metric, type) or not (callable(metric) or is_object(metric)):
            kind = metric.__name__ if isinstance(metric, type) else type(metric).__name__
            raise ModelDefError(
                f"eval_metrics_fn gives {kind} for {name!r}: give a function "
                "f(labels, predictions), or a metric object"
            )
    return dict(metrics)


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
