"""What a table of an embedding is, and what of it is read and changed.

An id is any integer of 64 bits; texts are hashed to one (`ids`). A row that nobody has changed yet
exists nowhere: its values follow from its table and its id alone (`initializers`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]
"""Ids, one dimension."""

Values: TypeAlias = NDArray[np.float32]
"""One row for each id: two dimensions."""

CANDIDATES: Final = ":candidates"
"""Behind a table's name that of its ids that have no row yet."""


@dataclass(frozen=True, slots=True)
class Life:
    """When an id gets a row, and when it loses it.

    Attributes:
        admit_after: The update in which its id comes for the so-manieth time makes a row.
        expire_after: A row goes that was in none of so many updates; None for never.
        max_rows: Where there would be more, those go that were in the fewest updates.
    """

    admit_after: int = 1
    expire_after: int | None = None
    max_rows: int | None = None

    @property
    def ends(self) -> bool:
        """Whether rows ever go."""
        return self.expire_after is not None or self.max_rows is not None


RowDtype: TypeAlias = Literal["float32", "bfloat16", "int8"]
"""What a store keeps of a number of a row."""

ROW_DTYPES: Final[Mapping[str, int]] = {"float32": 4, "bfloat16": 2, "int8": 1}
"""By name, the bytes of a number."""

WORD_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as its layer declares it.

    Attributes:
        name: Of the layer, unique in the model.
        dim: Numbers of a row.
        initializer: How a row begins, in the words of `initializers.parse`: `uniform(0.05)`.
        life: Of its rows.
        row_dtype: What is stored of their values, which are float32 to everybody else.
    """

    name: str
    dim: int
    initializer: str
    life: Life = Life()
    row_dtype: RowDtype = "float32"

    @property
    def num_words(self) -> int:
        """Words of a stored row that are its values; of int8 one more, their scale."""
        scale = 1 if self.row_dtype == "int8" else 0
        return scale + -(-self.dim * ROW_DTYPES[self.row_dtype] // WORD_BYTES)


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of some rows of a table.

    Attributes:
        ids: Strictly ascending.
        values: For each id the sum of the gradients of all places where it stands, of shape
            (ids, dim).
    """

    ids: Ids
    values: Values


RowGradients: TypeAlias = Mapping[str, RowGradient]
"""By the name of the table."""


class RowReader(Protocol):
    """Where a model gets rows from while it computes."""

    def read(self, table: Table, ids: Ids) -> Values:
        """Values of the rows of these ids, as of the version that the model is filled with.

        Args:
            table: Of which.
            ids: Strictly ascending.

        Returns:
            An array of shape (ids, dim) that is the caller's; of a row that nobody has changed yet
            its first values.
        """
