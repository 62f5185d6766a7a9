"""The picture of the README is what its data says, and names all that was killed."""

import json
import xml.etree.ElementTree as ET

from benchmarks import figure
from benchmarks.kills import KILLS, RESULT

DATA = json.loads(RESULT.read_text())


def test_the_picture_is_the_one_of_the_data():
    assert figure.PICTURE.read_text() == figure.draw(DATA), "python -m benchmarks.figure"


def test_everything_that_was_killed_stands_in_it():
    texts = [element.text for element in ET.fromstring(figure.draw(DATA)).iter() if element.text]
    for name in ("elastic", "torchrun"):
        assert [kill["who"] for kill in DATA[name]["kills"]] == [list(who) for _, who in KILLS]
    assert sum("killed" in text for text in texts) == 2 * len(KILLS)
    (account,) = [text for text in texts if "committed" in text]
    assert "16 epochs, each 2,400 records = 2,400 committed + 0 skipped" in account


def test_nothing_is_drawn_outside_of_it():
    root = ET.fromstring(figure.draw(DATA))
    width, height = float(root.get("width")), float(root.get("height"))
    for each in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(each.get("x", 0)), float(each.get("y", 0))
        assert x + float(each.get("width")) <= width
        assert 0 <= y <= y + float(each.get("height")) <= height
