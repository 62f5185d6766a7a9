"""Made workloads are what they say, and the same for the same seed."""

import pytest

from elastic.simulation.workload import GENERATORS


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_makes_the_same_workload(name):
    make = GENERATORS[name].make
    assert make(30, 7) == make(30, 7)


@pytest.mark.parametrize("name", ["tfjobs", "philly"])
def test_another_seed_makes_another_one(name):
    make = GENERATORS[name].make
    assert make(30, 7) != make(30, 8)


@pytest.mark.parametrize("name", GENERATORS)
def test_jobs_come_in_order_and_have_names_of_their_own(name):
    workload = GENERATORS[name].make(50, 1).workload
    times = [each.job.submitted_s for each in workload.submissions]
    assert times == sorted(times)
    assert len({each.job.key for each in workload.submissions}) == 50


def test_the_published_cluster_has_its_cores_and_memory():
    nodes = GENERATORS["equal_jobs"].make(20, 0).nodes
    assert len(nodes) == 133
    assert sum(node.allocatable["cpu"] for node in nodes) == pytest.approx(2_348_000, rel=1e-4)
    assert sum(node.allocatable["memory"] for node in nodes) == pytest.approx(13.67e12, rel=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_tfjobs_ask_for_most_cores_on_average(seed):
    scenario = GENERATORS["tfjobs"].make(2000, seed)
    submissions = scenario.workload.submissions
    asked = sum(4 * (each.asked + 1) * each.work.seconds for each in submissions)
    cores = sum(node.allocatable["cpu"] for node in scenario.nodes) / 1000
    assert asked / cores / submissions[-1].job.submitted_s == pytest.approx(0.7, rel=0.1)


def test_the_philly_shape_is_many_small_jobs_and_few_that_take_most_of_the_time():
    submissions = GENERATORS["philly"].make(5000, 1).workload.submissions
    small = [each for each in submissions if each.asked == 1]
    assert 0.65 < len(small) / len(submissions) < 0.75
    times = sorted((each.asked * each.work.seconds for each in submissions), reverse=True)
    assert sum(times[:500]) > 0.5 * sum(times)
    noon = sum(21_600 < each.job.submitted_s < 64_800 for each in submissions)
    assert noon > 0.6 * len(submissions)
