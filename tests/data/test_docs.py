"""The reader that docs/data.md shows works as it stands."""

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
