"""One entry for each format: how the same rows are written, and which `dataset_fn` reads them.

A new format is one entry here; the tests over all formats then hold for it.
"""

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from support.formats import example, framed, go_recordio, python_recordio

Row = tuple[list[float], int]


@dataclass(frozen=True)
class FormatCase:
    """How a format is tried.

    Attributes:
        name: Of the test.
        suffix: Of its files, without the first dot.
        write: The bytes of a file of such rows.
        dataset_fn: In `rows_torch` and `rows_keras`.
        params: Reader parameters.
        is_checked: Whether damage anywhere in a file is noticed by the format itself.
    """

    name: str
    suffix: str
    write: Callable[[list[Row]], bytes]
    dataset_fn: str
    params: dict[str, Any] = field(default_factory=dict)
    is_checked: bool = False


def taking(form, dataset_fn):
    """The setting that has a model take `records` by a dataset_fn, or `columns` by its batch_fn."""
    if form == "columns":
        return {"batch_fn": dataset_fn.replace("from_", "batch_of_")}
    return {"dataset_fn": dataset_fn}


def make_rows(num_rows, seed=0):
    """Rows whose label can be learnt; numbers that every text and every float holds exactly."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-16, 17, (num_rows, 4)) / 8
    return [(row.tolist(), int(row.sum() > 0)) for row in x]


def arrays(rows):
    return np.array([x for x, _ in rows], np.float32), np.array([label for _, label in rows])


def _saved(save, *args, **kwargs):
    out = io.BytesIO()
    save(out, *args, **kwargs)
    return out.getvalue()


def npz(rows):
    x, label = arrays(rows)
    return _saved(np.savez, x=x, label=label)


def npz_compressed(rows):
    x, label = arrays(rows)
    return _saved(np.savez_compressed, x=x, label=label)


def npy(rows):
    x, label = arrays(rows)
    return _saved(np.save, np.column_stack([x, label]))


def parquet(rows, rows_per_group=64):
    x, label = arrays(rows)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), 4)
    out = io.BytesIO()
    pq.write_table(pa.table({"x": vectors, "label": label}), out, row_group_size=rows_per_group)
    return out.getvalue()


def separated(delimiter, header=""):
    return lambda rows: (
        header + "".join(delimiter.join(map(str, (*x, label))) + "\n" for x, label in rows)
    ).encode()


def examples(rows):
    return [example(x=np.array(x, np.float32), label=np.array([label])) for x, label in rows]


def tfrecord(rows):
    return b"".join(map(framed, examples(rows)))


lines = separated(" ")
csv = separated(",", "a,b,c,d,label\n")
FORMATS = (
    FormatCase("npz", "npz", npz, "from_arrays"),
    FormatCase("npz-compressed", "npz", npz_compressed, "from_arrays", is_checked=True),
    FormatCase("npy", "npy", npy, "from_row"),
    FormatCase("parquet", "parquet", parquet, "from_arrays"),
    FormatCase("csv", "csv", csv, "from_columns"),
    FormatCase("csv-no-header", "csv", separated(","), "from_texts", {"header": False}),
    FormatCase("tsv", "tsv", separated("\t", "a\tb\tc\td\tlabel\n"), "from_columns"),
    FormatCase("csv-gz", "csv.gz", lambda rows: gzip.compress(csv(rows)), "from_columns"),
    FormatCase("lines", "txt", lines, "from_line"),
    FormatCase("lines-bz2", "txt.bz2", lambda rows: bz2.compress(lines(rows)), "from_line"),
    FormatCase("lines-xz", "txt.xz", lambda rows: lzma.compress(lines(rows)), "from_line"),
    FormatCase(
        "lines-zst",
        "txt.zst",
        lambda rows: zstandard.ZstdCompressor().compress(lines(rows)),
        "from_line",
    ),
    FormatCase("tfrecord", "tfrecord", tfrecord, "from_example", is_checked=True),
    FormatCase(
        "tfrecord-gz",
        "tfrecord",
        lambda rows: gzip.compress(tfrecord(rows)),
        "from_example",
        is_checked=True,
    ),
    FormatCase(
        "recordio",
        "recordio",
        lambda rows: go_recordio(examples(rows), 1),
        "from_example",
        is_checked=True,
    ),
    FormatCase(
        "recordio-python",
        "recordio",
        lambda rows: python_recordio(examples(rows), 2),
        "from_example",
        is_checked=True,
    ),
)
IDS = [case.name for case in FORMATS]
