"""Which files a path means, and which format they have."""

import os
import re

import numpy as np
import pytest

from elastic.data import open_reader
from elastic.errors import DataError


def shard_names(origin):
    return [shard.name for shard in open_reader(str(origin), 10, {}, None).create_shards()]


@pytest.fixture
def tree(tmp_path):
    for name in ("b.csv", "a.csv", ".hidden.csv", "_SUCCESS", "deep/c.csv", "deep/er/d.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text("1,2\n3,4\n")
    return tmp_path


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        pytest.param("a.csv", ["a.csv"], id="file"),
        pytest.param(".", ["a.csv", "b.csv"], id="folder-without-hidden-and-deeper-files"),
        pytest.param("./", ["a.csv", "b.csv"], id="folder-with-slash"),
        pytest.param("*.csv", ["a.csv", "b.csv"], id="glob"),
        pytest.param(
            "**/*.csv", ["a.csv", "b.csv", "deep/c.csv", "deep/er/d.csv"], id="glob-at-any-depth"
        ),
        pytest.param("*[abS]*", ["a.csv", "b.csv"], id="glob-without-hidden-files"),
        pytest.param("_*", ["_SUCCESS"], id="glob-of-hidden-files"),
        pytest.param("**/**/d*", ["deep/er/d.csv"], id="glob-names-a-file-once"),
        pytest.param("deep", ["deep/c.csv"], id="names-begin-with-what-the-user-wrote"),
    ],
)
def test_names(tree, monkeypatch, origin, expected):
    monkeypatch.chdir(tree)
    assert shard_names(origin) == expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        pytest.param("b.csv,a.csv", ["b.csv", "a.csv"], id="in-the-order-written"),
        pytest.param("deep, *.csv", ["deep/c.csv", "a.csv", "b.csv"], id="folder-and-glob"),
        pytest.param("a.csv,*.csv,./a.csv", ["a.csv", "b.csv"], id="each-file-once"),
        pytest.param("odd,name.csv", ["odd,name.csv"], id="an-existing-name-wins"),
        pytest.param('a.csv,"odd,name.csv"', ["a.csv", "odd,name.csv"], id="quoted"),
        pytest.param(
            '"odd,name.csv","say ""hi"".csv"', ["odd,name.csv", 'say "hi".csv'], id="both"
        ),
        pytest.param("odd*.csv", ["odd,name.csv"], id="glob-that-matches-a-comma"),
    ],
)
def test_several_sources(tree, monkeypatch, origin, expected):
    monkeypatch.chdir(tree)
    if "odd" in origin or "hi" in origin:
        for name in ("odd,name.csv", 'say "hi".csv'):
            (tree / name).write_text("1,2\n")
    assert shard_names(origin) == expected


def test_an_address_of_a_local_file_names_it_no_second_time(tree, monkeypatch):
    monkeypatch.chdir(tree)
    assert shard_names(f"a.csv,file://{tree}/a.csv,file://{tree},{tree}/b.csv") == [
        "a.csv",
        f"file://{tree}/b.csv",
    ]


def test_several_sources_are_one(tree, read_all):
    (tree / "c.csv").write_text("5,6\n")
    assert read_all(f"{tree}/c.csv,{tree}/deep/**/*.csv") == [
        ("5", "6"),
        *[("1", "2"), ("3", "4")] * 2,
    ]


@pytest.mark.parametrize("pattern", ["", "*.csv"])
def test_a_name_that_is_no_utf8_is_refused(tree, pattern):
    (tree / os.fsdecode(b"caf\xe9.csv")).write_text("1,2\n")
    with pytest.raises(DataError, match=r"the name of .*/caf\\udce9\.csv is not UTF-8"):
        shard_names(tree / pattern)


def test_a_file_whose_name_looks_like_a_glob_is_that_file(tmp_path):
    path = tmp_path / "part[1].csv"
    path.write_text("1,2\n")
    assert shard_names(path) == [str(path)]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.CSV", "1,2\n", ("1", "2")),
        ("a.tsv", "1\t2\n", ("1", "2")),
        ("a.txt", "1,2\n", "1,2"),
        ("a.py", "1,2\n", "1,2"),
        ("a.jsonl", '{"a": 1}\n', '{"a": 1}'),
        ("a", "1,2\n", "1,2"),
    ],
)
def test_the_suffix_chooses_the_format(tmp_path, read_all, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    assert read_all(path) == [expected]


def test_a_parameter_overrides_the_suffix(tmp_path, read_all):
    path = tmp_path / "a.dat"
    path.write_text("1,2\n")
    assert read_all(path, format="csv") == [("1", "2")]
    assert read_all(path, format="txt") == ["1,2"]


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        ("nowhere.csv", "nowhere.csv does not exist: check the path"),
        ("a" * 300, f"{'a' * 300} does not exist: check the path"),
        ("nowhere/*.csv", "no file matches nowhere/*.csv: check the pattern"),
        ("empty", "empty is an empty folder"),
        (
            "outer",
            "outer holds folders but no files: to read the files below them, give a glob like"
            " 'outer/**/*.csv'",
        ),
        ("void.csv", "void.csv holds no records: fill it, or take it out"),
        ("blank.csv", "blank.csv holds no records"),
        ("header.csv", "header.csv holds no records"),
        (
            "broken.csv",
            "broken.csv cannot be read (No such file or directory): check the path, and",
        ),
        ("folder*/*", "folder.csv/pipe is not a regular file"),
        ("image.png", "image.png has zero bytes, so it is binary or UTF-16: name its format with"),
        (
            "mixed",
            "mixed mixes formats (mixed/a.csv is csv, mixed/b.txt is lines): choose files with"
            " a glob like 'mixed/*.csv'",
        ),
        ("mixed/a.csv,", "mixed/a.csv, has an empty name between its commas"),
        ('"mixed/a.csv', '"mixed/a.csv: a quote is not closed'),
        ("mixed/a.csv,gone.csv", "gone.csv does not exist"),
        ("nowhere://a.csv", "nowhere://a.csv cannot be read (Protocol not known: nowhere"),
        (
            "s3://bucket/a.csv",
            "s3://bucket/a.csv cannot be read (Install s3fs to access S3): check ",
        ),
        ("", "the path of the records is empty"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path, monkeypatch, origin, message):
    monkeypatch.chdir(tmp_path)
    for folder in ("empty", "outer/inner", "folder.csv", "mixed"):
        (tmp_path / folder).mkdir(parents=True)
    os.mkfifo("folder.csv/pipe")
    (tmp_path / "broken.csv").symlink_to("gone.csv")
    for name, content in {
        "void.csv": b"",
        "blank.csv": b"\n\r\n\n",
        "header.csv": b"a,b\n",
        "image.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        "mixed/a.csv": b"1,2\n",
        "mixed/b.txt": b"1,2\n",
    }.items():
        (tmp_path / name).write_bytes(content)
    params = {"header": True} if origin == "header.csv" else {}
    with pytest.raises(DataError, match=f"^{re.escape(message)}"):
        open_reader(origin, 10, params, None).create_shards()


def test_an_empty_file_among_others_is_no_accident_to_hide(tree):
    (tree / "c.csv").touch()
    with pytest.raises(DataError, match=r"c\.csv holds no records"):
        shard_names(tree)


def test_a_folder_of_archives(tmp_path, read_all):
    for index in range(3):
        np.savez(tmp_path / f"{index}.npz", x=np.full(2, index))
    assert [record["x"] for record in read_all(tmp_path)] == [0, 0, 1, 1, 2, 2]
