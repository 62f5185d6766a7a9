"""The published experiments of the fulfillment autoscaler, with their figures as bounds."""

import pytest

from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.simulation.engine import Settings, simulate
from elastic.simulation.outcome import measure
from elastic.simulation.workload import GENERATORS


def run(name, period_s=5.0):
    generator = GENERATORS[name]
    scenario = generator.make(generator.num_jobs, 0)
    outcome = simulate(scenario.nodes, scenario.workload, Fulfillment(), Settings(period_s))
    return outcome, measure(outcome, scenario.workload.windows)


@pytest.fixture(scope="module", params=[5.0, 13.0], ids=["each-5-s", "each-13-s"])
def equal_jobs(request):
    return run("equal_jobs", request.param)


def test_jobs_are_pending_for_less_than_47_s_on_average(equal_jobs):
    _, metrics = equal_jobs
    assert metrics.pending.mean_s < 47
    assert metrics.num_never_started == metrics.num_not_ended == 0


def test_all_of_them_start_small_while_all_others_run(equal_jobs):
    """Nobody is refused: the twentieth starts before the first has ended."""
    outcome, _ = equal_jobs
    first_end_s = min(job.ended_s for job in outcome.jobs)
    assert all(job.started_s < first_end_s for job in outcome.jobs)


def test_86_percent_of_the_cores_are_in_use(equal_jobs):
    _, metrics = equal_jobs
    assert metrics.span("steady").utilisation["cpu"] >= 0.86
    assert metrics.span("all_in").utilisation["cpu"] >= 0.86


def test_equal_jobs_have_equal_shares(equal_jobs):
    _, metrics = equal_jobs
    assert metrics.span("steady").jain >= 0.9
    assert metrics.span("all_in").jain >= 0.9


@pytest.fixture(scope="module")
def off_peak():
    return run("off_peak")


def test_jobs_fill_what_a_service_leaves(off_peak):
    _, metrics = off_peak
    assert metrics.span("schedule").utilisation["cpu"] >= 0.834
    assert metrics.span("off_peak").utilisation["cpu"] >= 0.794


def test_jobs_give_way_to_the_service(off_peak):
    outcome, _ = off_peak
    wanted = {0: 400, 90: 300, 180: 200, 270: 100, 360: 200, 450: 300, 540: 400}
    for from_s, pods in wanted.items():
        # Within a period: what is given back is seen when the policy is asked next.
        at = [each for each in outcome.usage if each.at_s <= from_s + 10][-1]
        assert at.services["cpu"] == 3000 * pods, from_s
