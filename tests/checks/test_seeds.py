"""What a run takes of many seeds, and of long tests, is drawn by the day."""

from support import seeds


def days_that_take(name, every, monkeypatch):
    taken = set()
    for day in range(300):
        monkeypatch.setenv(seeds.VARIABLE, f"day {day}")
        if seeds.is_drawn(name, every):
            taken.add(day)
    return taken


def test_each_sampled_test_has_its_turn_on_days_of_its_own(monkeypatch):
    one, other = (days_that_take(name, 3, monkeypatch) for name in ("one", "other"))
    assert 70 < len(one) < 130
    assert 70 < len(other) < 130
    assert one - other
    assert other - one


def test_a_day_draws_the_same_again(monkeypatch):
    assert days_that_take("one", 2, monkeypatch) == days_that_take("one", 2, monkeypatch)
