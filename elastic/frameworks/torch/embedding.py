"""The torch layer whose table is elsewhere: it asks for the rows of the ids it is called with.

An `nn.Embedding` or `nn.EmbeddingBag` above a size becomes one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from elastic.errors import ModelDefError
from elastic.frameworks.base import Replacement
from elastic.frameworks.embeddings import (
    NO_DISTRIBUTION,
    UNNAMED,
    Reads,
    RowSource,
    check_names,
    checked_table,
    initializer_of,
    merged,
    refused_reading,
)
from elastic.frameworks.torch.tensors import to_array
from elastic.rows.base import Ids, Life, RowDtype, RowGradient, Values
from elastic.rows.ids import distinct_with_places, to_ids

Weights: TypeAlias = torch.Tensor | NDArray[Any] | Sequence[Any]


class Embedding(torch.nn.Module):
    """Rows of a table that is made row by row, and may be larger than any process's memory.

    It has no parameters. In a job rows come from the master, and their gradients go there; anywhere
    else all rows have their first values.
    """

    _anchor: torch.Tensor

    def __init__(
        self,
        dim: int,
        combiner: str | None = None,
        initializer: str = "uniform(0.05)",
        name: str | None = None,
        padding_id: int | str | None = None,
        admit_after: int = 1,
        expire_after: int | None = None,
        max_rows: int | None = None,
        row_dtype: RowDtype = "float32",
    ) -> None:
        """Declare a table.

        Args:
            dim: Numbers of a row.
            combiner: None gives a row for each id; `sum`, `mean` and `sqrtn` (the sum by the root
                of the number) make one vector of the ids along the last axis, zeros of none.
            initializer: How rows begin: `uniform(0.05)`, `normal(0.01)`, `constant(0.1)`,
                `zeros`, `ones`.
            name: Of the table, unique in the model; else the layer's name in the model.
            padding_id: An id that stands for none: it is left out of combiners, gives zeros
                without one, and has no row.
            admit_after: An id gets a row in the update in which it comes for the so-manieth time.
            expire_after: Rows go that were in none of so many updates; None for never.
            max_rows: Where there would be more, those go that were in the fewest updates.
            row_dtype: What is stored of a row's numbers: `float32`, `bfloat16`, or `int8` with a
                scale for each row. They are float32 wherever they are computed with.

        Raises:
            ModelDefError: One of these has no such value.
        """
        super().__init__()
        life = Life(admit_after, expire_after, max_rows)
        self.source = RowSource(checked_table(dim, combiner, initializer, name, life, row_dtype))
        self.combiner = combiner
        self.padding_id = padding_id
        self._is_named = name is not None
        self._padding = None if padding_id is None else int(to_ids([padding_id])[0])
        # Follows the module to its device and to another precision.
        self.register_buffer("_anchor", torch.empty(0), persistent=False)

    def be_named(self, name: str) -> None:
        """Take the name that the layer has in its model, unless it was given one."""
        if not self._is_named:
            self.source.name(name or UNNAMED)

    def forward(self, ids: Any, weights: Weights | None = None) -> torch.Tensor:
        """Look rows up.

        Args:
            ids: Integers or texts: a tensor, an array, lists, of shape S; with a combiner also
                lists or an array of lists of any lengths, or a tuple of ids and where in them each
                bag begins, as `nn.EmbeddingBag` takes it.
            weights: With a combiner, one for each id, in the same form; of a tuple, for its ids.

        Returns:
            A tensor of shape (*S, dim); with a combiner without the last axis of S.

        Raises:
            ModelDefError: They are neither integers nor texts, or of another form.
        """
        if self.combiner is not None:
            return self._combined(_bags(ids), weights)
        if weights is not None:
            raise ModelDefError("an embedding is given weights: it needs a combiner for them")
        return self._each(_rectangular(ids))

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        table = self.source.table
        return f"{table.dim}, combiner={self.combiner!r}, initializer={table.initializer!r}"

    def _each(self, ids: Ids) -> torch.Tensor:
        flat = ids.reshape(-1)
        is_id = self._is_id(flat)
        rows, index = self._rows(flat[is_id])
        if len(index) < len(flat):
            places = np.full(len(flat), len(rows), np.int64)
            places[is_id] = index
            # One more row, of zeros, where padding looks.
            rows, index = functional.pad(rows, (0, 0, 0, 1)), places
        return functional.embedding(self._here(index), rows).reshape(
            *ids.shape, self.source.table.dim
        )

    def _combined(self, bags: "_Bags", weights: Weights | None) -> torch.Tensor:
        is_id = self._is_id(bags.flat)
        owners = np.repeat(np.arange(len(bags.sizes)), bags.sizes)[is_id]
        sizes = np.bincount(owners, minlength=len(bags.sizes))
        rows, index = self._rows(bags.flat[is_id])
        if not len(index):
            return rows.new_zeros(*bags.shape, self.source.table.dim)
        shares = self._shares(self._here(owners), sizes, _flat_weights(weights, bags, is_id), rows)
        made = functional.embedding_bag(
            self._here(index), rows, self._here(np.cumsum(sizes) - sizes),
            mode="sum", per_sample_weights=shares,
        )  # fmt: skip
        return made.reshape(*bags.shape, self.source.table.dim)

    def _shares(
        self,
        owners: torch.Tensor,
        sizes: NDArray[np.int64],
        weights: torch.Tensor | None,
        rows: torch.Tensor,
    ) -> torch.Tensor | None:
        """By what each row is multiplied before a bag's are added up."""
        if weights is None:
            if self.combiner == "sum":
                return None
            totals = np.maximum(sizes, 1) ** (1.0 if self.combiner == "mean" else 0.5)
            return self._here((1.0 / totals).astype(np.float32)).to(rows.dtype)[owners]
        weights = weights.to(rows)
        if self.combiner == "sum":
            return weights
        parts = weights if self.combiner == "mean" else weights * weights
        totals_of = rows.new_zeros(len(sizes)).index_add(0, owners, parts)[owners]
        totals_of = totals_of if self.combiner == "mean" else totals_of.sqrt()
        # Weights may be 0 all of them.
        return weights / torch.where(totals_of == 0, torch.ones_like(totals_of), totals_of)

    def _is_id(self, flat: Ids) -> NDArray[np.bool_] | slice:
        """Which are no padding."""
        return slice(None) if self._padding is None else flat != self._padding

    def _rows(self, ids: Ids) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """The row of each id once, and for each id which of them is its."""
        unique, index = distinct_with_places(ids)
        leaf = self._here(self.source.read(unique))
        if torch.is_grad_enabled():
            self.source.tell(unique, leaf)
        return leaf.to(self._anchor.dtype), index

    def _here(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self._anchor.device)


def sources_of(module: torch.nn.Module) -> list[RowSource]:
    """Of all embeddings of a module, with their names.

    Raises:
        ModelDefError: Two layers have one name.
    """
    sources = []
    for name, layer in module.named_modules():
        if isinstance(layer, Embedding):
            layer.be_named(name)
            sources.append(layer.source)
    check_names([source.table for source in sources])
    return sources


def row_gradients(reads: Reads) -> dict[str, RowGradient]:
    """What `backward` has left of each table that was read."""
    return {
        name: merged([(ids, _gradient(leaf)) for ids, leaf in each])
        for name, each in reads.by_table.items()
        if each
    }


def _gradient(leaf: torch.Tensor) -> Values:
    """Zeros where the loss does not depend on the rows, as for a parameter."""
    return to_array(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


@dataclass(frozen=True, slots=True)
class _Bags:
    """Ids of bags, one after the other.

    Attributes:
        flat: All ids.
        sizes: How many of them each bag has.
        shape: Of what comes out, without its last dimension.
    """

    flat: Ids
    sizes: NDArray[np.int64]
    shape: tuple[int, ...]


def _bags(ids: Any) -> _Bags:
    if isinstance(ids, tuple) and len(ids) == 2 and all(map(_is_flat, ids)):
        return _bags_from_offsets(*ids)
    if _has_lists(ids):
        lists = [_to_numpy(each) for each in ids]
        sizes = np.array([len(each) for each in lists], np.int64)
        some = [each for each in lists if len(each)]
        flat = to_ids(np.concatenate(some)) if some else np.empty(0, np.int64)
        return _Bags(flat, sizes, sizes.shape)
    array = _rectangular(ids)
    if not array.ndim:
        raise ModelDefError("an embedding with a combiner is given a single id: give a list")
    shape = array.shape[:-1]
    sizes = np.full(int(np.prod(shape)), array.shape[-1], np.int64)
    return _Bags(array.reshape(-1), sizes, shape)


def _bags_from_offsets(values: Any, offsets: Any) -> _Bags:
    flat, starts = to_ids(_to_numpy(values)), to_ids(_to_numpy(offsets))
    sizes = np.diff(starts, append=len(flat))
    if (len(starts) and starts[0]) or (len(flat) and not len(starts)) or (sizes < 0).any():
        raise ModelDefError(
            f"an embedding is given {len(flat)} ids with the offsets {starts[:5].tolist()}…: let "
            "them ascend from 0 to at most the number of ids"
        )
    return _Bags(flat, sizes, sizes.shape)


def _flat_weights(
    weights: Weights | None, bags: _Bags, is_id: NDArray[np.bool_] | slice
) -> torch.Tensor | None:
    """A weight for each id that is no padding."""
    if weights is None:
        return None
    if isinstance(weights, torch.Tensor):
        flat = weights.reshape(-1)
    elif _has_lists(weights):
        flat = torch.from_numpy(np.concatenate([np.asarray(each) for each in weights]))
    else:
        flat = torch.from_numpy(np.asarray(weights).reshape(-1))
    if len(flat) != len(bags.flat):
        raise ModelDefError(
            f"an embedding is given {len(bags.flat)} ids and {len(flat)} weights: give one for "
            "each id"
        )
    return flat if isinstance(is_id, slice) else flat[torch.from_numpy(is_id).to(flat.device)]


def _rectangular(ids: Any) -> Ids:
    """Ids of one shape."""
    if _has_lists(ids) and len({len(each) for each in ids}) > 1:
        raise ModelDefError(
            "an embedding is given lists of different lengths: give it a combiner, or fill them up "
            "with a padding_id"
        )
    if isinstance(ids, np.ndarray) and _has_lists(ids):
        ids = ids.tolist()
    return to_ids(_to_numpy(ids))


def _has_lists(ids: Any) -> bool:
    """Whether the elements are lists of ids, which may have different lengths."""
    is_list = isinstance(ids, (list, tuple)) or (
        isinstance(ids, np.ndarray) and ids.dtype.kind == "O" and ids.ndim == 1
    )
    return is_list and bool(len(ids)) and all(map(_is_list, ids))


def _is_list(value: Any) -> bool:
    """A list of ids, and no list of lists, which is taken for rectangular."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1
    return isinstance(value, (list, tuple)) and not any(
        isinstance(each, (list, tuple)) for each in value[:1]
    )


def _is_flat(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim == 1


def _to_numpy(ids: Any) -> NDArray[Any]:
    if isinstance(ids, torch.Tensor):
        return to_array(ids)
    try:
        return np.asarray(ids)
    except ValueError as error:
        raise ModelDefError(
            "an embedding is given lists within lists of different lengths: give lists of ids, or "
            "an array"
        ) from error


class TableInPlace(Embedding):
    """What an ordinary layer has become; it is called as it was before."""

    @property
    def weight(self) -> torch.Tensor:
        """There is none.

        Raises:
            ModelDefError: Always.
        """
        raise refused_reading(self.source.table.name, "weight")


class BagInPlace(TableInPlace):
    """What an `nn.EmbeddingBag` has become."""

    include_last_offset: bool

    def forward(
        self,
        input: Any,  # noqa: A002 - torch's name, by which it may be given
        offsets: Any = None,
        per_sample_weights: Any = None,
    ) -> torch.Tensor:
        """Look bags up as `nn.EmbeddingBag` does."""
        if offsets is None:
            return super().forward(input, per_sample_weights)
        starts = offsets[:-1] if self.include_last_offset else offsets
        return super().forward((input, starts), per_sample_weights)


def replace_layers(module: nn.Module, threshold_bytes: int) -> Replacement:
    """Replace the embedding layers of a module whose weights take so many bytes or more.

    The objects stay, for the module's lists, attributes and functions know them.
    """
    replaced: dict[str, str] = {}
    left: dict[str, str] = {}
    uses = Counter(id(p) for each in module.modules() for p in each.parameters(recurse=False))
    for name, layer in list(module.named_modules()):
        if not isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
            continue
        if layer.weight.nbytes < threshold_bytes:
            continue
        reason = _obstacle(layer, uses)
        initializer = None if reason else initializer_of(to_array(_trained_rows(layer)))
        if initializer is None:
            left[name] = reason or NO_DISTRIBUTION
        else:
            replaced[name] = initializer
            _replace(layer, initializer)
    return Replacement(replaced, left)


def _obstacle(layer: nn.Embedding | nn.EmbeddingBag, uses: Counter[int]) -> str | None:
    """Why rows in a table would be something else; None where they are the same."""
    obstacles = {
        f"it is a {type(layer).__name__}, which may do otherwise": type(layer)
        not in (nn.Embedding, nn.EmbeddingBag),
        "it has max_norm": layer.max_norm is not None,
        "it has scale_grad_by_freq": layer.scale_grad_by_freq,
        "its mode is max": getattr(layer, "mode", "") == "max",
        "it is not trained": not layer.weight.requires_grad,
        "its numbers are no float32": layer.weight.dtype != torch.float32,
        "another layer has the same weight": uses[id(layer.weight)] > 1,
        "the row of its padding_idx is not 0": _has_padding_row(layer),
    }
    return next((reason for reason, holds in obstacles.items() if holds), None)


def _has_padding_row(layer: nn.Embedding | nn.EmbeddingBag) -> bool:
    return layer.padding_idx is not None and bool(layer.weight[layer.padding_idx].any())


def _trained_rows(layer: nn.Embedding | nn.EmbeddingBag) -> torch.Tensor:
    """All but that of the padding."""
    weight = layer.weight.detach()
    if layer.padding_idx is None:
        return weight
    return torch.cat([weight[: layer.padding_idx], weight[layer.padding_idx + 1 :]])


def _replace(layer: nn.Embedding | nn.EmbeddingBag, initializer: str) -> None:
    is_bag = isinstance(layer, nn.EmbeddingBag)
    combiner = layer.mode if isinstance(layer, nn.EmbeddingBag) else None
    made = Embedding(layer.embedding_dim, combiner, initializer, padding_id=layer.padding_idx)
    made.source.take_ids_below(layer.num_embeddings)
    device = layer.weight.device
    del layer.weight
    layer.__class__ = BagInPlace if is_bag else TableInPlace  # type: ignore[assignment]
    of_all_modules = vars(nn.Module())
    for name, value in vars(made).items():
        if name not in of_all_modules:
            setattr(layer, name, value)
    layer.register_buffer("_anchor", torch.empty(0, device=device), persistent=False)
