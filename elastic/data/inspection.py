"""What records hold, told from the records themselves, and what a source does.

The latter is what somebody who writes a `dataset_fn` wants to know.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from elastic.data.base import DataReader, ReadTask, fields_of
from elastic.data.formats.registry import is_folder
from elastic.data.image_folders import class_names, list_images
from elastic.policy.tasks.records import Shard

SAMPLE: Final = 100
"""Records that the forms of fields are told from."""


@dataclass(frozen=True, slots=True)
class FieldForm:
    """What one field holds in all records that were looked at.

    Attributes:
        kind: `str`, `bytes`, a dtype of NumPy, or the type of another Python object; several are
            joined by `|`.
        shape: Of arrays; None stands for a length that differs, and all of it is None where the
            number of dimensions differs.
    """

    kind: str
    shape: tuple[int | None, ...] | None = ()

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.kind} (of several shapes)"
        sizes = ", ".join("*" if size is None else str(size) for size in self.shape)
        return f"{self.kind} ({sizes})" if self.shape else self.kind

    def joined(self, other: "FieldForm") -> "FieldForm":
        """What holds for both."""
        kinds = dict.fromkeys((*self.kind.split("|"), *other.kind.split("|")))
        shape: tuple[int | None, ...] | None = None
        if None not in (self.shape, other.shape) and len(self.shape or ()) == len(
            other.shape or ()
        ):
            pairs = zip(self.shape or (), other.shape or (), strict=True)
            shape = tuple(one if one == another else None for one, another in pairs)
        return FieldForm("|".join(kinds), shape)


def form_of_value(value: Any) -> FieldForm:
    """What one value is."""
    if isinstance(value, np.ndarray):
        kind = {"U": "str", "S": "bytes"}.get(value.dtype.kind, str(value.dtype))
        return FieldForm(kind, value.shape)
    if isinstance(value, (str, bytes)):
        return FieldForm("str" if isinstance(value, str) else "bytes")
    if isinstance(value, (bool, int, float, complex, np.generic)):
        return FieldForm(str(np.asarray(value).dtype))
    if isinstance(value, (list, tuple)):
        try:
            return form_of_value(np.asarray(value))
        except ValueError:
            # Of lists that differ in length.
            return FieldForm(type(value).__name__)
    return FieldForm(type(value).__name__)


def form_of_rows(rows: NDArray[Any]) -> FieldForm:
    """What every record has of an array that holds a row for each."""
    return replace(form_of_value(rows), shape=rows.shape[1:])


def forms_of(records: Iterable[Any]) -> dict[str, FieldForm]:
    """What the fields of some records hold; a field that some lack is there all the same."""
    forms: dict[str, FieldForm] = {}
    for record in records:
        for name, value in fields_of(record).items():
            form = form_of_value(value)
            known = forms.get(name)
            forms[name] = form if known is None or known == form else known.joined(form)
    return forms


@dataclass(frozen=True, slots=True)
class Inspection:
    """One source.

    Attributes:
        shards: Of all files, in order.
        records: The first ones, at most `SAMPLE`.
        forms: What their fields hold.
        kind: What a record is: `dict`, `tuple`, `str`, …
        classes: Of a folder of images, what the labels stand for.
    """

    shards: Sequence[Shard]
    records: Sequence[Any]
    forms: dict[str, FieldForm]
    kind: str
    classes: Sequence[str]

    @property
    def num_records(self) -> int:
        return sum(shard.num_records for shard in self.shards)

    @property
    def files(self) -> dict[str, int]:
        """Records by the name of their source."""
        counts: Counter[str] = Counter()
        for shard in self.shards:
            counts[shard.name] += shard.num_records
        return dict(counts)


def inspect(reader: DataReader, classes: Sequence[str] | None = None) -> Inspection:
    """Find the shards of a source and read its first records.

    Args:
        reader: Of the source.
        classes: Those that the user has named.

    Raises:
        DataError: The source is missing, unreadable, empty or malformed.
    """
    shards = list(reader.create_shards())
    records: list[Any] = []
    for shard in shards:
        end = min(shard.end, shard.start + SAMPLE - len(records))
        records += islice(reader.read_records(ReadTask(shard, shard.start, end)), end - shard.start)
        if len(records) == SAMPLE:
            break
    name = shards[0].name
    has_classes = is_folder(name) and list_images(name, classes).classes is not None
    return Inspection(
        shards=shards,
        records=records,
        forms=forms_of(records),
        kind=type(records[0]).__name__,
        classes=(classes or class_names(name)) if has_classes else (),
    )
