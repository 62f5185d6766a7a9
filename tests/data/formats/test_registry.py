"""Reader parameters: known names with usable values, or an error that helps."""

import math
import re

import pytest

from elastic.data import open_reader
from elastic.data.formats.registry import ReaderOptions, parse_options
from elastic.errors import JobSpecError


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, ReaderOptions()),
        ({"format": "CSV", "header": True}, ReaderOptions(format="csv", header=True)),
        ({"format": ".jsonl"}, None),
        ({"header": "False"}, ReaderOptions(header=False)),
        ({"delimiter": "tab"}, ReaderOptions(delimiter="\t")),
        ({"delimiter": "\\t"}, ReaderOptions(delimiter="\t")),
        ({"delimiter": ";"}, ReaderOptions(delimiter=";")),
        ({"encoding": "UTF8"}, ReaderOptions(encoding="utf-8")),
        ({"encoding": "utf-8-sig"}, ReaderOptions(encoding="utf-8")),
        ({"cache_mb": "64"}, ReaderOptions(cache_mb=64)),
    ],
)
def test_values(params, expected):
    if expected is None:
        with pytest.raises(JobSpecError):
            parse_options(params)
    else:
        assert parse_options(params) == expected


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"delimeter": ","}, "delimeter is unknown: did you mean delimiter?"),
        (
            {"zzz": 1},
            "zzz is unknown: use one of format, header, delimiter, encoding, compression, types, "
            "cache_mb",
        ),
        ({"format": "cvs"}, "format=cvs is unknown: did you mean csv?"),
        ({"format": "avro"}, "other formats are read with a custom_data_reader"),
        ({"header": "yes"}, "header=yes is not one of true, false, auto"),
        ({"delimiter": ",,"}, "delimiter=',,' is not one ASCII character"),
        ({"delimiter": '"'}, "is not one ASCII character"),
        ({"encoding": "utf-9"}, "encoding=utf-9 is no encoding that Python knows"),
        ({"encoding": "base64"}, "encoding=base64 is no encoding"),
        ({"encoding": "utf-16"}, "encoding=utf-16 cannot be split into lines by bytes"),
        ({"encoding": "iso2022_jp"}, "cannot be split into lines by bytes"),
        ({"encoding": "gbk", "delimiter": "|"}, "cannot be told from a part of a character in gbk"),
        ({"cache_mb": "much"}, "cache_mb=much is not a number of MiB"),
        ({"cache_mb": math.inf}, "cache_mb=inf is not a number of MiB"),
        ({"size": [math.inf, 2]}, "size=[inf, 2] is not the height and width of an image"),
        (
            {"format": "lines", "header": True},
            "header has no meaning for lines files, which take format, encoding, compression",
        ),
    ],
)
def test_refusals(params, message):
    with pytest.raises(JobSpecError, match=re.escape(message)):
        open_reader("anything", 1, params, None)


def test_a_parameter_of_another_format_is_refused_once_the_format_is_known(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n")
    with pytest.raises(JobSpecError, match="delimiter has no meaning for lines files"):
        open_reader(str(path), 1, {"delimiter": ";"}, None).create_shards()
