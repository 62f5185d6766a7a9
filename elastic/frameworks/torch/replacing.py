"""`nn.Embedding` and `nn.EmbeddingBag` above a size become layers whose rows are in a table."""

from collections import Counter
from typing import Any

import torch
from torch import nn

from elastic.frameworks.base import Replacement
from elastic.frameworks.replacing import NO_DISTRIBUTION, initializer_of, refused_reading
from elastic.frameworks.torch.arrays import to_array
from elastic.frameworks.torch.embedding import Embedding


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
