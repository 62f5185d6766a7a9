"""A pod's log over several reads: no line is lost, whatever its time, and none comes twice."""

from urllib.parse import parse_qs, urlsplit

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.platforms.kubernetes.job import logs
from elastic.platforms.kubernetes.job.logs import ExcuseError, PodLog

DATE = "Thu, 01 Jan 2026 00:00:07 GMT"
EXCUSE = b"failed to try resolving symlinks in path\n"


def body(*lines):
    """A log; each line begins with the second, and perhaps fraction, that it has for a stamp."""
    stamped = (line.partition(" ") for line in lines)
    return b"".join(f"2026-01-01T00:00:{at}Z {text}\n".encode() for at, _, text in stamped)


def read(*bodies, tail=None):
    """What each of several reads gives, and what each was asked for."""
    with FakeApi(Answer(), *(Answer(body=content) for content in bodies)) as api:
        api.date = DATE
        cluster = api.cluster()
        # Whose clock it is, is known from an answer.
        cluster.get("/version")
        log = PodLog(cluster, pod(running(), namespace="team"), tail=tail)
        texts = []
        for _ in bodies:
            try:
                texts.append([line.text for line in log.lines()])
            except ExcuseError:
                texts.append(None)
        asked = [parse_qs(urlsplit(seen.path).query) for seen in api.requests[1:]]
    return texts, asked


TRACEBACK = ("07.5 Traceback", "07.5   line 3", "07.5 ValueError: bad")


def test_lines_that_were_written_at_once_have_the_same_stamp():
    first, then = body(*TRACEBACK), body(*TRACEBACK, "07.5 at once too", "08.0 later")
    texts, asked = read(first, then, then)
    assert texts[0] == ["Traceback", "  line 3", "ValueError: bad"]
    assert texts[1:] == [["at once too", "later"], []]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:07Z"]


def test_so_may_lines_that_a_tail_has_left_out():
    texts, _ = read(body(*TRACEBACK[1:]), body(*TRACEBACK, "08.0 later"), tail=2)
    assert texts == [["  line 3", "ValueError: bad"], ["later"]]


@pytest.mark.parametrize("early", ["07.4", "01.2"], ids=["between-streams", "clock-set-back"])
def test_a_line_may_have_an_earlier_stamp_than_the_one_before(early):
    texts, _ = read(body("07.5 one", f"{early} two", "07.6 three"), body("07.6 three", "08.0 four"))
    assert texts == [["one", "two", "three"], ["four"]]


SET_BACK = ("40.1 line 0", "41.1 line 1", "41.1 line 2", "10.5 back 0", "11.5 back 1")


def test_after_a_clock_was_set_back_a_read_begins_with_later_stamps():
    then = body(*SET_BACK[:3], SET_BACK[4], "11.6 back 2")
    much_later = then + body("40.3 back 3", "41.1 at the same time again")
    texts, asked = read(body(*SET_BACK), then, then, much_later, much_later)
    assert texts[1:] == [["back 2"], [], ["back 3", "at the same time again"], []]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:11Z"]
    assert asked[4]["sinceTime"] == ["2026-01-01T00:00:41Z"]


def test_nor_does_it_hide_what_comes_after_the_file_has_changed():
    texts, _ = read(body(*SET_BACK), body("11.7 of the next file", "40.2 too"))
    assert texts[1] == ["of the next file", "too"]


def test_what_a_tail_left_out_of_its_first_second_stays_out_when_the_clock_was_set_back():
    before = body("41.0 before the tail", *SET_BACK[1:])
    texts, _ = read(body(*SET_BACK[2:]), before + body("11.6 back 2"), tail=3)
    assert texts[1] == ["back 2"]


def test_forgotten_lines_may_come_twice_and_hide_nothing_new_where_the_stream_ends(monkeypatch):
    monkeypatch.setattr(logs, "NUM_REMEMBERED", 2)
    again = body(*SET_BACK[:3], SET_BACK[4], "11.6 back 2")
    texts, asked = read(body(*SET_BACK), body(*SET_BACK[:3]), again, body("11.6 back 2"))
    assert [asked[at]["sinceTime"] for at in (1, 2, 3)] == [["2026-01-01T00:00:11Z"]] * 3
    assert texts[2][-1] == "back 2"
    assert texts[3] == []


def test_all_lines_of_the_last_second_are_remembered(monkeypatch):
    monkeypatch.setattr(logs, "NUM_REMEMBERED", 2)
    burst = body("07.1 a", "07.2 b", "07.3 c", "07.4 d")
    texts, _ = read(burst, burst + body("08.0 later"))
    assert texts[1] == ["later"]


def test_a_last_line_that_has_left_with_its_file_does_not_keep_the_reads_where_they_are(
    monkeypatch,
):
    monkeypatch.setattr(logs, "NUM_REMEMBERED", 3)
    later = body(*(f"{second} of the next file" for second in range(12, 24)))
    texts, asked = read(body("50.0 first", "11.0 set back"), later, later)
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:11Z"]
    assert len(texts[1]) == 12
    assert asked[2]["sinceTime"] == ["2026-01-01T00:00:23Z"]


def test_what_is_no_longer_there_hides_nothing_new():
    texts, _ = read(body(*TRACEBACK), body("08.0 of the next file"))
    assert texts[1] == ["of the next file"]


def test_a_tail_that_could_not_be_read_is_asked_for_again_and_then_no_more():
    texts, asked = read(EXCUSE, body("07.5 one"), body("07.5 one", "08.0 two"), tail=1)
    assert texts == [None, ["one"], ["two"]]
    assert [query.get("tailLines") for query in asked] == [["1"], ["1"], None]


@pytest.mark.parametrize("first", [b"", EXCUSE], ids=["silent", "failed"])
def test_without_a_tail_at_all_the_next_read_begins_where_the_first_has(first):
    texts, asked = read(first, body("05.0 old", "08.5 new"), body("08.5 new"), tail=0)
    assert texts[1:] == [["new"], []]
    assert [query.get("tailLines") for query in asked] == [["0"], None, None]
    assert asked[1]["sinceTime"] == ["2026-01-01T00:00:07Z"]
