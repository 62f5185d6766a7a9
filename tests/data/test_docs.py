"""The code that docs/data.md shows works as it stands."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "data.md"


# The example leaves its connections to the garbage collector, which newer Pythons warn about.
@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_the_example_reads_a_table(tmp_path, read_all):
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    module = {}
    exec(example, module)
    origin = str(tmp_path / "samples.db")
    rows = [(float(index), index % 3) for index in range(25)]
    with closing(sqlite3.connect(origin)) as connection, connection:
        connection.execute("CREATE TABLE measured (x REAL, y INTEGER)")
        connection.executemany("INSERT INTO measured VALUES (?, ?)", rows)
    assert read_all(origin, custom=module["custom_data_reader"], table="measured") == rows


def test_the_example_of_prepare_data_makes_records(tmp_path):
    (example,) = re.findall(r"```python prepare\n(.*?)```", DOCS.read_text(), re.DOTALL)
    module = {}
    exec(example, module)
    (tmp_path / "a.xml").write_text(
        '<all><sample x="0.5" label="1"/><sample x="1" label="0"/></all>'
    )
    assert list(module["prepare_data"](tmp_path / "a.xml")) == [
        {"x": 0.5, "label": 1},
        {"x": 1.0, "label": 0},
    ]
