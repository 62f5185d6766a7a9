"""The limit of `make test` goes by the speed that the cores had, which is measured."""

import sys
import time

import pytest
import run
from support import machine_speed
from support.machine_speed import REFERENCE_S, MachineSpeed


@pytest.fixture
def play(monkeypatch):
    """Plays a machine: how long its work takes each time, and how its cores' ticks grow."""

    def play(times_s, ticks):
        left = list(times_s)
        monkeypatch.setattr(machine_speed, "work_s", lambda: left.pop(0))
        monkeypatch.setattr(machine_speed, "PERIOD_S", 0.0)
        speed = MachineSpeed()
        speed._before = [0] * 8
        monkeypatch.setattr(machine_speed, "core_times", lambda: ticks)
        speed._measure = lambda: [speed._times_s.append(machine_speed.work_s()) for _ in times_s]
        return speed

    return play


@pytest.mark.parametrize(
    ("works", "ticks", "mean"),
    [
        pytest.param([1.0], [900, 0, 100, 0, 0, 0, 0, 0], 1.0, id="as the reference"),
        pytest.param([2.0, 2.0], [900, 0, 100, 0, 0, 0, 0, 0], 0.5, id="half as fast"),
        pytest.param([1.0, 3.0], [900, 0, 100, 0, 0, 0, 0, 0], 0.5, id="for a part of the time"),
        pytest.param([0.5, 0.5], [900, 0, 100, 0, 0, 0, 0, 0], 1.0, id="never above one"),
        pytest.param([1.0], [600, 0, 150, 5000, 9, 0, 0, 250], 0.75, id="a quarter stolen"),
        pytest.param([2.0], [0, 0, 0, 5000, 0, 0, 0, 0], 0.5, id="nothing to do"),
    ],
)
def test_work_that_is_given_takes_so_much_longer(works, ticks, mean, play):
    speed = play([each * REFERENCE_S for each in works], ticks)
    with speed.measured():
        pass
    assert speed.mean == pytest.approx(mean)


def test_waiting_for_a_core_is_not_slowness(monkeypatch):
    """A run that has more processes than cores is not excused by what they wait for each other."""
    monkeypatch.setattr(machine_speed, "compile", lambda *_: time.sleep(0.1), raising=False)
    assert machine_speed.work_s() < 0.1


def test_it_is_measured_as_long_as_it_is_entered(monkeypatch):
    monkeypatch.setattr(machine_speed, "PERIOD_S", 0.0)
    speed = MachineSpeed()
    with speed.measured() as measured:
        while len(speed._times_s) < 3:
            pass
    num_times = len(speed._times_s)
    assert measured is speed
    assert 0.0 < speed.mean <= 1.0
    assert len(speed._times_s) == num_times


def test_a_limit_counts_by_the_speed(play, monkeypatch, capfd):
    """On a machine that stands still nothing is too slow."""
    monkeypatch.setattr(run, "MachineSpeed", lambda: play([1.0], [0, 0, 0, 0, 0, 0, 0, 1]))
    monkeypatch.setattr(run, "parts", lambda: [run.Part("a", [sys.executable, "-c", ""])])
    monkeypatch.setattr(sys, "argv", ["run.py", "--limit_minutes", "0"])
    assert run.main() == 0
    assert "speed of a core: 0.00, so that it counts as 0.0 min" in capfd.readouterr().out
