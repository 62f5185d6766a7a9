"""What one update does to rows: the user's optimizer, told as a rule, row by row.

A row whose gradient is not there is not touched, as by torch's `SparseAdam` and Keras' own
optimizers given slices: moments do not decay for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RowRule:
    """How the user's optimizer updates a row, without its learning rate, which may have a schedule.

    Attributes:
        kind: A word of `KERNELS`.
        numbers: Its hyper-parameters, by the words of that kernel.
    """

    kind: str
    numbers: Mapping[str, float] = field(default_factory=dict)
