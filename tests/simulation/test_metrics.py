"""The numbers of a simulation: means are weighted by time, and nobody gains by refusing jobs."""

import pytest
from simulation.toys import CPU, ByTable, StartsAtMin, holding, nodes, working

from elastic.policy.cluster import Decision, Share
from elastic.simulation.engine import simulate
from elastic.simulation.outcome import measure, percentile
from elastic.simulation.workload import Window, Workload


def measured(submissions, policy, windows=(), count=1, cpu=4, **resources):
    outcome = simulate(nodes(count, cpu, **resources), Workload(tuple(submissions)), policy)
    return measure(outcome, windows)


def sized(at_s, **sizes):
    return at_s, [Decision(f"TrainingJob/d/{name}", size, "so") for name, size in sizes.items()]


def test_utilisation_is_weighted_by_time():
    policy = ByTable([sized(0, a=1), sized(10, a=4)])
    windows = (Window("late", 5, 15), Window("end", 15))
    found = measured([holding("a", hold_s=20, high=4)], policy, windows)
    assert found.whole.utilisation["cpu"] == pytest.approx((10 * 0.25 + 10 * 1) / 20)
    assert found.span("late").utilisation["cpu"] == pytest.approx((5 * 0.25 + 5 * 1) / 10)
    assert (found.span("end").from_s, found.span("end").to_s) == (15, 20)
    assert found.span("end").utilisation["cpu"] == 1


@pytest.mark.parametrize("requests", [CPU, CPU | {"ephemeral-storage": 8, "pods": 1}])
def test_the_use_of_what_no_job_asks_for_is_not_told(requests):
    room = {"memory": 64, "ephemeral-storage": 16, "pods": 110, "hugepages-2Mi": 4}
    found = measured([holding("a", requests=requests)], StartsAtMin(), **room)
    asked = {"cpu", "memory", *requests} - {"pods"}
    assert found.whole.utilisation.keys() == asked


def test_a_window_after_the_first_end_is_the_moment_before_it():
    policy = ByTable([sized(0, a=3)])
    found = measured([holding("a", hold_s=20, high=4)], policy, (Window("steady", 300),))
    assert (found.span("steady").from_s, found.span("steady").to_s) == (20, 20)
    assert found.span("steady").utilisation["cpu"] == 0.75


def test_fairness_is_that_of_the_scores():
    # Scores 1 and 0 for 10 s, then 0.5 and 0.5.
    policy = ByTable([sized(0, a=3, b=1), sized(10, a=2, b=2)])
    found = measured(
        [holding("a", hold_s=20, high=3), holding("b", hold_s=20, high=3)],
        policy,
        (Window("first", 0, 10), Window("then", 10, 20)),
    )
    assert found.span("first").jain == pytest.approx(0.5)
    assert found.span("then").jain == pytest.approx(1)
    assert found.whole.jain == pytest.approx(0.75)


def test_who_waits_is_among_those_that_are_compared():
    policy = ByTable([sized(0, a=2)])
    found = measured(
        [holding("a", hold_s=20, high=3), holding("b", hold_s=20, high=3)],
        policy,
        (Window("first", 0, 20),),
    )
    assert found.span("first").jain == pytest.approx(0.5)


def test_there_is_no_fairness_among_jobs_without_a_range():
    assert measured([holding("a")], StartsAtMin()).whole.jain is None


def test_a_job_that_never_started_has_waited_to_the_end():
    policy = ByTable([sized(0, a=1)])
    found = measured([holding("a", hold_s=100), holding("b", 20, hold_s=1)], policy)
    assert (found.num_never_started, found.num_not_ended) == (1, 1)
    assert found.pending.max_s > 500
    assert found.completion.mean_s == 100


def test_times():
    found = measured([holding("a", 0), holding("b", 1), holding("c", 2)], StartsAtMin(), cpu=2)
    # b is decided on at 5, c waits for a, which ends at 10.
    assert (found.pending.mean_s, found.pending.max_s) == ((0 + 4 + 8) / 3, 8)
    assert found.completion.mean_s == (10 + 14 + 18) / 3
    assert found.makespan_s == 20


def test_scale_actions_are_changes_of_jobs_that_run():
    policy = ByTable([sized(0, a=1, b=2), sized(5, a=2), sized(10, a=1)])
    found = measured([holding("a", hold_s=20, high=3), holding("b", hold_s=20, high=3)], policy)
    assert found.scale_actions == 2


def test_the_use_of_shared_cards_is_told():
    found = measured([holding("a", share=Share(300))], StartsAtMin(), **{"nvidia.com/gpu": 2000})
    assert found.main_resource == "nvidia.com/gpu"
    assert found.whole.card_use == pytest.approx(0.3)
    assert found.whole.utilisation["nvidia.com/gpu"] == pytest.approx(0.15)


def test_nothing_to_tell_of_is_none():
    found = measured([working("a")], ByTable([]))
    assert (found.completion.mean_s, found.makespan_s > 0) == (None, True)


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (75, 3), (99, 4), (100, 4), (1, 1)])
def test_percentiles_are_of_the_nearest_rank(percent, expected):
    assert percentile([4, 1, 3, 2], percent) == expected
