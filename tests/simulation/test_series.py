"""What plots show is what happened, and they can be drawn."""

import pytest
from simulation.toys import ByTable, StartsAtMin, holding, nodes

from elastic.policy.cluster import Decision
from elastic.simulation.engine import simulate
from elastic.simulation.outcome import Result, measure
from elastic.simulation.plots import OTHERS, SERVICES, averaged, distribution, stack, waiting
from elastic.simulation.workload import Service, Workload


@pytest.fixture
def outcome():
    service = Service("web", {"cpu": 1000}, {"cpu": 1000}, ((0, 1), (10, 0)))
    policy = ByTable(
        {
            0: [Decision("TrainingJob/d/a", 1, ""), Decision("TrainingJob/d/b", 1, "")],
            5: [Decision("TrainingJob/d/a", 2, "")],
            20: [Decision("TrainingJob/d/c", 1, "")],
        }
    )
    jobs = (holding("a", high=2, hold_s=20), holding("b", hold_s=5), holding("c", 2, hold_s=5))
    return simulate(nodes(), Workload(jobs, (service,)), policy)


def test_layers_are_what_each_job_has(outcome):
    shown = stack(outcome, "cpu", 9)
    assert shown.times_s == (0, 5, 10, 20, 25)
    assert dict(shown.layers) == {
        SERVICES: (0.25, 0.25, 0, 0, 0),
        "a": (0.25, 0.5, 0.5, 0, 0),
        "b": (0.25, 0, 0, 0, 0),
        "c": (0, 0, 0, 0.25, 0),
    }


def test_jobs_with_the_least_use_share_a_layer(outcome):
    layers = dict(stack(outcome, "cpu", 1).layers)
    assert set(layers) == {SERVICES, "a", OTHERS}
    assert layers[OTHERS] == (0.25, 0, 0, 0.25, 0)


def test_layers_add_up_to_what_is_in_use(outcome):
    shown = stack(outcome, "cpu", 9)
    sums = [sum(values) for values in zip(*(values for _, values in shown.layers), strict=True)]
    for at_s, layers in zip(shown.times_s, sums, strict=True):
        # There is no entry where one gives what another takes.
        last = [each for each in outcome.usage if each.at_s <= at_s][-1]
        assert layers == last.used["cpu"] / 4000, at_s


def test_waiting_is_told(outcome):
    times, counts = waiting(outcome)
    assert dict(zip(times, counts, strict=True))[2] == 1


def test_what_changes_often_is_shown_by_its_mean():
    series = ([1, 2, 3, 5], [4, 0, 8, 2])
    assert averaged(series, 8, 4) == series_of(series)
    assert averaged(series, 8, 2) == ((0, 4), ((4 + 8) / 4, (8 + 3 * 2) / 4))


def series_of(series):
    return tuple(series[0]), tuple(series[1])


def test_completion_times_are_told_as_parts_of_all_jobs(outcome):
    times, parts = distribution(outcome)
    assert times == (5, 20, 23)
    assert parts == pytest.approx((1 / 3, 2 / 3, 1))


def test_pictures_are_drawn(outcome, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra plots")
    from elastic.simulation.plots import draw

    nothing = simulate(nodes(), Workload((holding("a"),)), ByTable({}))
    one = simulate(nodes(), Workload((holding("a"),)), StartsAtMin())
    results = [
        Result(name, each, measure(each), 0.1)
        for name, each in (("some", outcome), ("nobody", nothing), ("one", one))
    ]
    paths = draw(results, tmp_path)
    assert [path.name for path in paths] == [
        "use-some.png",
        "use-nobody.png",
        "use-one.png",
        "comparison.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
