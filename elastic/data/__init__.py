"""Readers: where records come from and how a range of them is read.

Belongs here: the readers of files and of the user (`readers`). What they are made of, from the
bytes up: `storage` and `remote`, `formats`, `sources`, `images`; `picking` for records in any
order. What is done with records: `inspection`, `convert` by `writers`, `predictions`. Users import
`example` and `image_folders`.
Does not belong here: features, labels and batches (`frameworks`), and who reads what (`policy`).
"""

from collections.abc import Callable, Mapping
from typing import Any

from elastic.data.base import DataReader
from elastic.data.readers import FileReader, build_custom_reader


def open_reader(
    origin: str,
    records_per_task: int,
    params: Mapping[str, Any],
    custom: Callable[..., Any] | None,
    *,
    beside: bool = False,
) -> DataReader:
    """Make the reader of a job's records; every process makes its own from the same arguments.

    Args:
        origin: File, folder or glob; for a custom reader, whatever it takes.
        records_per_task: Records of a task, >= 1; shards hold whole tasks.
        params: `--data_reader_params`.
        custom: The user's `custom_data_reader`, or None for the built-in formats.
        beside: Whether records that take long to decode are decoded by processes of their own: for
            who computes meanwhile.

    Raises:
        JobSpecError: A parameter is unknown or has no meaning.
        DataError: The user's reader cannot be made.
    """
    if custom is not None:
        return build_custom_reader(custom, origin, records_per_task, params)
    return FileReader(origin, records_per_task, params, beside)


__all__ = ["DataReader", "open_reader"]
