"""Whatever the content and however it is split into tasks, tasks read what the whole file holds."""

import csv
import io
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.data.formats import scan
from elastic.data.formats.delimited import RowEnds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Blocks and shards of a few bytes, so that small examples cross their borders."""
    saved = scan.SHARD_BYTES, scan.SCAN_BLOCK_BYTES, scan.READ_BLOCK_BYTES
    scan.SHARD_BYTES, scan.SCAN_BLOCK_BYTES, scan.READ_BLOCK_BYTES = 40, 7, 5
    yield
    scan.SHARD_BYTES, scan.SCAN_BLOCK_BYTES, scan.READ_BLOCK_BYTES = saved


def read_by_tasks(path, params, records_per_task, draw_cut):
    """Read all shards through a second reader, as a worker does, each cut at random places."""
    shards = open_reader(str(path), records_per_task, params, None).create_shards()
    worker = open_reader(str(path), records_per_task, params, None)
    records = []
    for shard in shards:
        position = shard.start
        while position < shard.end:
            end = min(shard.end, position + draw_cut())
            records += worker.read_records(ReadTask(shard, position, end))
            position = end
    assert [shard.start for shard in shards] == [0, *(shard.end for shard in shards[:-1])]
    assert all(shard.num_records % records_per_task == 0 for shard in shards[:-1])
    return records


def whole_file(folder, content):
    # A new file each time: readers refuse one that changes.
    path = folder / f"records-{os.urandom(6).hex()}"
    path.write_bytes(content)
    return path


fields = st.text(st.sampled_from('ab1 ,;"\n\r\té中\u2028'), max_size=12)


@settings(deadline=None, max_examples=150)
@given(
    st.data(),
    st.integers(1, 4).flatmap(
        lambda width: st.lists(
            st.lists(fields, min_size=width, max_size=width), min_size=1, max_size=30
        )
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.integers(1, 5),
    st.sampled_from([",", ";", "\t"]),
)
def test_written_csv(folder, data, rows, line_end, quoting, records_per_task, delimiter):
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=line_end, quoting=quoting).writerows(rows)
    content = out.getvalue().encode()
    if data.draw(st.booleans()):
        content = content.removesuffix(line_end.encode())
    path = whole_file(folder, content)
    with path.open(newline="", encoding="utf-8") as file:
        expected = [tuple(row) for row in csv.reader(file, delimiter=delimiter) if row]
    params = {"format": "csv", "header": False, "delimiter": delimiter}
    # The writer leaves a carriage return unquoted where it is not the line end: rows fall apart.
    assume(expected and len({len(row) for row in expected}) == 1)
    records = read_by_tasks(path, params, records_per_task, lambda: data.draw(st.integers(1, 7)))
    assert records == expected
    if quoting == csv.QUOTE_ALL:
        assert records == [tuple(row) for row in rows]


@settings(deadline=None, max_examples=600)
@given(st.text(st.sampled_from('ab,"\n\r'), max_size=60))
@example("a,b\r\nc")
def test_row_ends_agree_with_the_csv_module_on_any_text(text):
    """Also where quotes are misplaced: then rows end where the csv module ends them."""
    lines = io.StringIO(text, newline="")
    taken = [0]
    rows = csv.reader(_counting(lines, taken))
    ends = [taken[0] for row in rows if row]
    block = text.encode()
    marks = RowEnds(",")(block, True)
    found = (np.flatnonzero(marks) + 1).tolist()
    is_closed = not ends or ends[-1] < len(block) or _is_closed(text)
    if is_closed:
        assert found == ends
    else:
        assert found == ends[:-1]
    # A block that is cut anywhere marks no row that the whole does not have.
    for size in range(len(block)):
        part = (np.flatnonzero(RowEnds(",")(block[:size], False)) + 1).tolist()
        assert part == found[: len(part)]


def _counting(lines, taken):
    for line in lines:
        taken[0] += len(line)
        yield line


def _is_closed(text):
    """Whether the last quoted field is closed: a further line is then a row of its own."""
    end = "" if text.endswith(("\n", "\r")) else "\n"
    whole = list(csv.reader(io.StringIO(text, newline="")))
    more = list(csv.reader(io.StringIO(f"{text}{end}x", newline="")))
    return more == [*whole, ["x"]]


@settings(deadline=None, max_examples=100)
@given(
    st.data(),
    st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.integers(1, 5),
)
def test_lines(folder, data, lines, line_end, ends_with_newline, records_per_task):
    text = line_end.join(lines) + (line_end if ends_with_newline else "")
    content = text.encode()
    assume(content.removeprefix(scan.UTF8_BOM))
    path = whole_file(folder, content)
    records = read_by_tasks(
        path, {"format": "lines"}, records_per_task, lambda: data.draw(st.integers(1, 7))
    )
    expected = content.decode("utf-8-sig").replace("\r\n", "\n").split("\n")
    if expected[-1] == "":
        expected.pop()
    assert records == expected


@settings(deadline=None, max_examples=60)
@given(
    st.data(),
    st.integers(1, 40),
    st.sampled_from(["<f4", ">i8", "|u1", "<U3", "?"]),
    st.lists(st.integers(1, 3), max_size=2),
    st.booleans(),
    st.sampled_from("CF"),
)
def test_npz(folder, data, length, dtype, row_shape, is_compressed, order):
    shape = (length, *row_shape)
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype, order=order)
    arrays = {"x": x, "label": np.arange(length)}
    path = folder / f"{os.urandom(6).hex()}.npz"
    (np.savez_compressed if is_compressed else np.savez)(path, **arrays)
    records = read_by_tasks(path, {}, 3, lambda: data.draw(st.integers(1, 9)))
    assert len(records) == length
    for index, record in enumerate(records):
        assert list(record) == ["x", "label"]
        assert np.array_equal(record["x"], x[index])
        assert record["x"].dtype.isnative
        assert record["label"] == index


@settings(deadline=None, max_examples=60)
@given(
    st.data(),
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.text(max_size=4),
            st.lists(st.integers(0, 9), max_size=3),
        ),
        min_size=1,
        max_size=60,
    ),
    st.integers(1, 9),
    st.sampled_from([0, 1]),
)
def test_parquet(folder, data, rows, group_size, cache_mb):
    ids, texts, lists = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "id": ids,
            "text": pa.array(texts).dictionary_encode(),
            "pair": pa.array([[each % 7, -1] for each in ids], pa.list_(pa.float32(), 2)),
            "list": pa.array(lists, pa.list_(pa.int32())),
        }
    )
    path = folder / f"{os.urandom(6).hex()}.parquet"
    pq.write_table(table, path, row_group_size=group_size)
    params = {"cache_mb": cache_mb}
    records = read_by_tasks(path, params, 3, lambda: data.draw(st.integers(1, 9)))
    assert [record["id"] for record in records] == ids
    assert [record["text"] for record in records] == texts
    assert [record["pair"].tolist() for record in records] == [[each % 7, -1] for each in ids]
    assert [record["list"].tolist() for record in records] == lists


@pytest.fixture(scope="module")
def pictures(folder):
    root = folder / "pictures"
    for index in range(23):
        path = root / f"class{index % 3}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((index % 2 + 1, 2, 3), index, np.uint8)).save(path)
    return root


@settings(deadline=None, max_examples=25)
@given(st.data(), st.sampled_from([{}, {"size": 2}]))
def test_images(pictures, data, params):
    records = read_by_tasks(pictures, params, 3, lambda: data.draw(st.integers(1, 9)))
    whole = read_by_tasks(pictures, params, 3, lambda: 99)
    assert sorted(int(record["image"].max()) for record in records) == list(range(23))
    for record, expected in zip(records, whole, strict=True):
        np.testing.assert_equal(record, expected)
        assert record["label"] == record["image"].max() % 3
