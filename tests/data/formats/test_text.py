"""CSV and lines: what a record is, and what is said about one that is none."""

import re

import pytest

from elastic.data import open_reader, storage
from elastic.data.base import ReadTask
from elastic.data.formats import scan
from elastic.data.formats.delimited import is_header
from elastic.data.storage import LocalFile
from elastic.errors import DataError
from elastic.policy.tasks.records import Shard


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_rows_under_a_header_are_dicts(tmp_path, read_all):
    path = write(tmp_path / "a.csv", 'text,n\r\n"a\nb",1\r\n\r\n"say ""hi"", you",2')
    assert read_all(path) == [{"text": "a\nb", "n": "1"}, {"text": 'say "hi", you', "n": "2"}]


def test_rows_without_a_header_are_tuples(tmp_path, read_all):
    assert read_all(write(tmp_path / "a.csv", "x,1\ny,2\n"), header=False) == [
        ("x", "1"),
        ("y", "2"),
    ]


def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path, read_all):
    assert read_all(write(tmp_path / "a.csv", "\ufeffa,b\n1,2\n")) == [{"a": "1", "b": "2"}]
    assert read_all(write(tmp_path / "b.csv", '\ufeff"1","2"\n')) == [("1", "2")]
    assert read_all(write(tmp_path / "a.txt", "\ufeffa\nb")) == ["a", "b"]


def test_zero_bytes_are_text_where_the_format_is_said(tmp_path, read_all):
    path = write(tmp_path / "a.txt", "a\0b\nc\n")
    with pytest.raises(DataError, match=r"a\.txt has zero bytes.* format=\.\.\. \(lines, where it"):
        read_all(path)
    assert read_all(path, format="lines") == ["a\0b", "c"]


def test_a_quote_inside_an_unquoted_field_is_a_character(tmp_path, read_all):
    path = write(tmp_path / "a.csv", '5" pipe,1\n"x\ny",2\n6" pipe,3\n')
    assert read_all(path, header=False) == [('5" pipe', "1"), ("x\ny", "2"), ('6" pipe', "3")]


def test_a_field_may_be_long(tmp_path, read_all):
    long = "long " * 60_000
    path = write(tmp_path / "a.csv", f'"{long}",1\n"b",2\n')
    assert read_all(path, header=False) == [(long, "1"), ("b", "2")]


@pytest.mark.parametrize(("name", "quote"), [("a.csv", '"'), ("a.txt", "")])
def test_a_record_may_be_as_long_as_the_limit(tmp_path, monkeypatch, read_all, name, quote):
    monkeypatch.setattr(scan, "MAX_RECORD_BYTES", 1 << 20)
    long = "x" * ((1 << 20) - len(quote) * 2 - 1)
    path = write(tmp_path / name, f"{quote}{long}{quote}\n" * 3)
    assert (
        read_all(path, **({"header": False} if quote else {})) == [(long,) if quote else long] * 3
    )
    write(path, f"{quote}{long}..{quote}\n" * 3)
    with pytest.raises(DataError, match="line 1: the record is longer than 1 MiB"):
        read_all(path)


def test_looking_for_a_quote_that_never_closes_ends_at_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(scan, "MAX_RECORD_BYTES", 1 << 20)
    path = write(tmp_path / "a.csv", 'a,b\n1,"open\n' + "2,x\n" * (1 << 20))
    ends = []
    read_at = LocalFile.read_at

    def watched(file, offset, size_bytes):
        ends.append(offset + size_bytes)
        return read_at(file, offset, size_bytes)

    monkeypatch.setattr(LocalFile, "read_at", watched)
    with pytest.raises(DataError, match="line 2: the record is longer than 1 MiB: look for a"):
        open_reader(str(path), 2, {"header": True}, None).create_shards()
    assert max(ends) == len("a,b\n") + (1 << 20) + 1


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param([["x", "y"], ["1", "a"]], True, id="a-number-below-a-name"),
        pytest.param([["", "y"], ["0", "1"], ["1", "2"]], True, id="unnamed-index-column"),
        pytest.param([["1", "y"], ["2", "3"]], False, id="a-number-above"),
        pytest.param([["x", "x"], ["2", "3"]], None, id="a-name-twice-is-in-doubt"),
        pytest.param([["x", "y"], ["a", "b"]], False, id="only-text"),
        pytest.param([["x"], ["1984"], ["emma"], ["persuasion"]], False, id="a-number-among-text"),
        pytest.param([["x", "y"], ["1", "b"], ["", "c"]], None, id="not-all-numbers-is-in-doubt"),
        pytest.param([["x", "y"], ["", "b"], ["", "c"]], False, id="nothing-told"),
        pytest.param([["x", "y"]], False, id="nothing-below"),
    ],
)
def test_header_detection(rows, expected):
    assert is_header(rows) is expected


def test_a_first_row_that_is_in_doubt_is_asked_about(tmp_path, read_all):
    path = write(tmp_path / "a.csv", "age,name,a,b,c,d\n31,ann,x,x,x,x\n,bob,x,x,x,x\n")
    with pytest.raises(DataError) as caught:
        read_all(path)
    assert str(caught.value) == (
        f"{path}: the first row (age, name, a, b, c, …) has no number, and the rows below have "
        "some: does it name the columns? If so say --data_reader_params header=true, if it is a "
        "record header=false"
    )
    assert read_all(path, header=True)[1]["name"] == "bob"
    assert len(read_all(path, header=False)) == 3


def test_lines_keep_everything_but_their_end(tmp_path, read_all):
    path = write(tmp_path / "a.txt", "a\r\n\n b\x0c\rc\u2028d \n\ne\r\r\n")
    assert read_all(path) == ["a", "", " b\x0c\rc\u2028d ", "", "e\r"]


def test_encodings(tmp_path, read_all):
    path = write(tmp_path / "a.csv", "é,1\nü,2\n".encode("latin-1"))
    assert read_all(path, header=False, encoding="latin-1") == [("é", "1"), ("ü", "2")]
    path = write(tmp_path / "a.txt", "中文\n文".encode("gb18030"))
    assert read_all(path, encoding="gb18030") == ["中文", "文"]


def error_of(path, **params):
    """The records before the first error, and the error."""
    records = []

    def read():
        reader = open_reader(str(path), 2, params, None)
        for shard in reader.create_shards():
            records.extend(reader.read_records(ReadTask(shard, shard.start, shard.end)))

    with pytest.raises(DataError) as caught:
        read()
    return records, str(caught.value).replace(str(path), "FILE")


def test_a_row_of_another_width(tmp_path):
    path = write(tmp_path / "a.csv", 'a,b\n"1\n\n",2\n\n3,4,5\n6,7\n')
    records, error = error_of(path, header=True)
    assert records == [{"a": "1\n\n", "b": "2"}]
    assert error.startswith("FILE, line 6 (record 1): 3 fields where the file has 2 columns: mend")
    # The records around it can still be read by themselves.
    reader = open_reader(str(path), 2, {"header": True}, None)
    (shard,) = reader.create_shards()
    assert list(reader.read_records(ReadTask(shard, 2, 3))) == [{"a": "6", "b": "7"}]


@pytest.mark.parametrize(("suffix", "before"), [("txt", "ok"), ("csv", ("ok",))])
def test_bytes_of_another_encoding(tmp_path, suffix, before):
    path = write(tmp_path / f"a.{suffix}", b"ok\nb\xe9d\nok\n")
    records, error = error_of(path)
    assert records == [before]
    assert error.startswith(
        "FILE, line 2 (record 1): byte 0xe9 at offset 4 is not utf-8: mend the file, or name its"
    )
    # The records around it can still be read by themselves.
    reader = open_reader(str(path), 2, {}, None)
    shards = reader.create_shards()
    for index in (0, 2):
        [shard] = [shard for shard in shards if shard.start <= index < shard.end]
        assert list(reader.read_records(ReadTask(shard, index, index + 1))) == [before]


def test_a_header_of_another_encoding(tmp_path):
    _, error = error_of(write(tmp_path / "a.csv", b"a,\xe9\n1,2\n"), header=True)
    assert error.startswith("FILE, line 1 (record 0): byte 0xe9 at offset 2 is not utf-8")


def test_a_quote_that_is_never_closed(tmp_path):
    _, error = error_of(write(tmp_path / "a.csv", '1,2\n\n3,"4\n5,6\n'), header=False)
    assert error.startswith("FILE, line 3: the record has a quote that is never closed: close it")


def test_line_numbers_count_every_kind_of_line_end(tmp_path, monkeypatch):
    content = b"1\n2\r\n3\r4\n\n6\r\n\r\n8\r\r\n"
    file = LocalFile(str(write(tmp_path / "a.csv", content)))
    for block_bytes in (1, 2, 3, 100):
        monkeypatch.setattr(storage, "_COUNT_BLOCK_BYTES", block_bytes)
        for digit in b"123468":
            assert file.line_number(content.index(digit)) == int(chr(digit))


def test_a_header_with_a_name_twice(tmp_path):
    _, error = error_of(write(tmp_path / "a.csv", "a,b,a\n1,2,3\n"), header=True)
    assert error.startswith("FILE: the header has the column 'a' twice: rename one")


def test_files_with_other_columns(tmp_path):
    write(tmp_path / "a.csv", "a,b\n1,2\n")
    write(tmp_path / "b.csv", "a,c\n1,2\n")
    write(tmp_path / "c.csv", "1,2\n")
    with pytest.raises(
        DataError, match=r"b\.csv has the columns a, c but .*a\.csv has the columns a, b: make the"
    ):
        open_reader(str(tmp_path), 2, {}, None).create_shards()
    (tmp_path / "b.csv").unlink()
    with pytest.raises(DataError, match=r"c\.csv has 2 columns without a header but"):
        open_reader(str(tmp_path), 2, {}, None).create_shards()


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_a_shard_of_another_file_is_noticed(tmp_path, name):
    path = write(tmp_path / name, "1,2\n3,4\n5,6\n")

    def error_for(task):
        with pytest.raises(DataError) as caught:
            list(open_reader(str(path), 1, {}, None).read_records(task))
        return str(caught.value).replace(str(path), "FILE")

    inside = Shard(str(path), 1, 3, offset_bytes=5)
    assert error_for(ReadTask(inside, 1, 2)).startswith("FILE: no record begins at byte 5, where")
    beyond = Shard(str(path), 3, 4, offset_bytes=90)
    assert error_for(ReadTask(beyond, 3, 4)).startswith("FILE: no record begins at byte 90")
    longer = Shard(str(path), 1, 9, offset_bytes=4)
    assert error_for(ReadTask(longer, 2, 9)).startswith(
        "FILE ends after record 3, at byte 12, but a task goes on to record 9: the file is not"
    )
    unplaced = Shard(str(path), 0, 3)
    assert "does not say at which byte it begins" in error_for(ReadTask(unplaced, 0, 1))
    outside = Shard(str(path), 0, 2, offset_bytes=0)
    assert error_for(ReadTask(outside, 1, 3)) == (
        "FILE: records [1, 3) are outside the shard [0, 2)"
    )


def test_record_of_a_missing_range_is_nothing(tmp_path):
    shard = Shard(str(tmp_path / "gone.txt"), 0, 4, 0)
    reader = open_reader("gone.txt", 1, {}, None)
    assert list(reader.read_records(ReadTask(shard, 2, 2))) == []
    with pytest.raises(DataError, match=re.escape("gone.txt cannot be read (No such file")):
        list(reader.read_records(ReadTask(shard, 2, 3)))
