"""A causal transformer that predicts the next byte of source text, in torch.

Pre-norm blocks, learned positions, 0.87 million parameters by default (3.5 MB), so that
computing a gradient costs far more than sending it. `char_lm_keras` is the same function.

Records: `window` (context + 1,) uint8.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY_SIZE = 256
INITIAL_STD = 0.02


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each around a residual path."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.attention_output = nn.Linear(d_model, d_model)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.expand = nn.Linear(d_model, 4 * d_model)
        self.contract = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, time, d_model) to the same shape."""
        n, time, d_model = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(n, time, 3, self.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_output(mixed.transpose(1, 2).reshape(n, time, d_model))
        hidden = nn.functional.gelu(self.expand(self.feed_forward_norm(x)))
        return x + self.contract(hidden)


class CustomModel(nn.Module):
    """The transformer; `context` is the most bytes it can be given."""

    def __init__(
        self, d_model: int = 128, n_layers: int = 4, n_heads: int = 4, context: int = 64
    ) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.embedding = nn.Embedding(VOCABULARY_SIZE, d_model)
        self.positions = nn.Embedding(context, d_model)
        self.blocks = nn.Sequential(*(Block(d_model, n_heads) for _ in range(n_layers)))
        self.norm = nn.LayerNorm(d_model)
        self.logits = nn.Linear(d_model, VOCABULARY_SIZE)
        self.apply(_initialize)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map bytes (n, time) int64 to logits (n, time, 256)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) + self.positions(positions)
        return self.logits(self.norm(self.blocks(x)))


def _initialize(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=INITIAL_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy in nats per byte."""
    return nn.functional.cross_entropy(predictions.flatten(0, 1), labels.flatten())


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam, as in the Keras twin."""
    return torch.optim.Adam(parameters, lr=1e-3, eps=1e-8)


def dataset_fn(dataset: Iterable[Mapping[str, Any]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Split each window into the bytes seen and, one place on, the bytes to predict."""
    for record in dataset:
        window = torch.as_tensor(record["window"]).long()
        yield window[:-1], window[1:]


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of bytes predicted correctly."""
    return (predictions.argmax(dim=-1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
