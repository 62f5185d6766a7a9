import pytest

from elastic.spec.values import Since, parse_since


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("10m", 600.0), ("1h30m", 5400.0), ("2d", 172800.0), ("1.5h", 5400.0)],
)
def test_a_duration_is_before_the_clock_of_whoever_wrote(text, seconds):
    assert parse_since(text) == Since(seconds, before_now=True)
    assert parse_since(text).at_s(1e6) == 1e6 - seconds


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"])
def test_a_moment_is_a_moment(text):
    assert parse_since(text).at_s(now_s=5.0) == 1769860800.0


@pytest.mark.parametrize("text", ["", "10", "m", "10m!", "-5m", "10 m", "yesterday"])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="is neither a duration"):
        parse_since(text)
