"""Which part of Python's library a passage comes from: a bag of hashed words, in torch.

Records: rows with `text`, some lines of source text, and `area`, one of `AREAS`.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

AREAS = ("asyncio", "email", "import", "processes", "testing", "web", "xml")
NUM_BUCKETS = 4096
"""Words share so many rows of the embedding; row 0 stands for no word."""
MAX_WORDS = 80
_WORD = re.compile("[A-Za-z]+")


class CustomModel(nn.Module):
    """The mean of the words' embeddings, and one linear layer."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(NUM_BUCKETS, dim, mode="mean", padding_idx=0)
        # As Keras begins: torch's own choice drowns what is learned of seldom words.
        nn.init.uniform_(self.embedding.weight, -0.05, 0.05)
        self.logits = nn.Linear(dim, len(AREAS))

    def forward(self, words: Tensor) -> Tensor:
        """Map rows of the embedding (n, 80) to logits (n, 7)."""
        return self.logits(self.embedding(words))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """Mean cross-entropy; `labels` is (n,) int64, `predictions` (n, 7) logits."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with a high rate, as most rows of the embedding are seldom trained."""
    return torch.optim.Adam(parameters, lr=0.02)


def row(word: str) -> int:
    """The embedding's row of a word; Python's own `hash` differs from process to process."""
    return 1 + zlib.crc32(word.lower().encode()) % (NUM_BUCKETS - 1)


def dataset_fn(dataset: Iterable[Mapping[str, str]], mode: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Split the text into words, hash them, and fill up with zeros to `MAX_WORDS`."""
    for record in dataset:
        rows = [row(word) for word in _WORD.findall(record["text"])][:MAX_WORDS]
        padded = rows + [0] * (MAX_WORDS - len(rows))
        yield torch.tensor(padded), torch.tensor(AREAS.index(record["area"]))


def accuracy(labels: Tensor, predictions: Tensor) -> Tensor:
    """The fraction of passages named correctly."""
    return (predictions.argmax(dim=1) == labels).float().mean()


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The metrics of one evaluation."""
    return {"accuracy": accuracy}
