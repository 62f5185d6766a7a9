"""Embeddings for a model_def: a layer whose table is kept beside the model, row by row.

    from elastic.embedding import Embedding

    items = Embedding(16, combiner="mean")

It is a layer of the framework that the calling module uses. Where a module uses both, name the one:
`TorchEmbedding`, `KerasEmbedding`. This module imports no framework by itself. `to_ids` makes the
ids that a layer makes, for who combines them.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from elastic.errors import ModelDefError
from elastic.rows.base import RowDtype
from elastic.rows.ids import to_ids

if TYPE_CHECKING:
    from elastic.frameworks.keras.embedding import Embedding as KerasEmbedding
    from elastic.frameworks.torch.embedding import Embedding as TorchEmbedding

__all__ = ["Embedding", "KerasEmbedding", "RowDtype", "TorchEmbedding", "to_ids"]

_FRAMEWORKS: Final = {"torch": "torch", "keras": "keras", "tensorflow": "keras"}
_LAYERS: Final = {
    "TorchEmbedding": "elastic.frameworks.torch.embedding",
    "KerasEmbedding": "elastic.frameworks.keras.embedding",
}


def Embedding(  # noqa: N802 - for its callers it is a class
    dim: int,
    combiner: str | None = None,
    initializer: str = "uniform(0.05)",
    name: str | None = None,
    padding_id: int | str | None = None,
    admit_after: int = 1,
    expire_after: int | None = None,
    max_rows: int | None = None,
    row_dtype: RowDtype = "float32",
) -> Any:
    """Make the layer of the framework that the caller's module uses.

    Args:
        dim: Numbers of a row.
        combiner: None gives a row for each id: of ids of shape S a tensor of shape (*S, dim).
            `sum`, `mean` and `sqrtn` make one vector of the ids along the last axis.
        initializer: How rows begin: `uniform(0.05)`, `normal(0.01)`, `constant(0.1)`, `zeros`,
            `ones`.
        name: Of the table, unique in the model; else the layer's name in the model.
        padding_id: An id that stands for none: left out by combiners, zeros without one.
        admit_after: An id gets a row in the update in which it comes for the so-manieth time.
        expire_after: Rows go that were in none of so many updates; None for never.
        max_rows: Where there would be more, those go that were in the fewest updates.
        row_dtype: What is stored of a row's numbers: `float32`, `bfloat16`, or `int8` with a scale
            for each row.

    Raises:
        ModelDefError: An argument has no such value, or the framework cannot be told.
    """
    # Not as this is imported: imports in the order of the alphabet have no framework yet then.
    namespace = sys._getframe(1).f_globals  # noqa: SLF001 - there is no public way to the caller
    kind = {"torch": "TorchEmbedding", "keras": "KerasEmbedding"}[_framework_of(namespace)]
    layer = _layer(kind)
    life = admit_after, expire_after, max_rows
    return layer(dim, combiner, initializer, name, padding_id, *life, row_dtype)


def __getattr__(name: str) -> Any:
    if name not in _LAYERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _layer(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAYERS})


def _layer(name: str) -> Any:
    return import_module(_LAYERS[name]).Embedding


def _framework_of(namespace: dict[str, Any]) -> str:
    """The framework that a module uses; else the one that is loaded."""
    used = {_FRAMEWORKS.get(_package(value)) for value in namespace.values()} - {None}
    loaded = {_FRAMEWORKS[name] for name in _FRAMEWORKS if name in sys.modules}
    for found in (used, loaded):
        if len(found) == 1:
            return str(found.pop())
    raise ModelDefError(
        f"{namespace.get('__name__')} uses {'both keras and torch' if used else 'no framework'}: "
        "import TorchEmbedding or KerasEmbedding from elastic.embedding"
    )


def _package(value: Any) -> str:
    """The package that a module, a class or a function comes from."""
    name = getattr(value, "__name__", "") if isinstance(value, type(sys)) else ""
    name = name or getattr(value, "__module__", "")
    return name.partition(".")[0] if isinstance(name, str) else ""
