"""What somebody who writes a `dataset_fn` wants to know of a source."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from elastic.data.base import DataReader, ReadTask
from elastic.data.fields import FieldForm, forms_of
from elastic.data.formats.registry import is_folder
from elastic.data.image_folders import class_names, list_images
from elastic.policy.records import Shard

SAMPLE: Final = 100
"""Records that the forms of fields are told from."""


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
