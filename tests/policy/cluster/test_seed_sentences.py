"""A case for each sentence by which the fulfillment autoscaler and DRAGON were described.

Tests are named after the sentences. Where one of them says less than is done here, or something
else, the test's docstring says what holds.
"""

from dataclasses import replace

import pytest
from support.clusters import (
    decided,
    group,
    job,
    key,
    node,
    note,
    reason,
    share,
    sizes,
    snapshot,
)

from elastic.policy.cluster import Rules, carried_out
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.standings import score


def planned(before, policy=None):
    """Sizes once the plan is carried out."""
    return sizes(carried_out(before, (policy or Fulfillment(max_load=1.0)).plan(before)))


def tf(name, low, high, placement=None, **more):
    """A TFJob of workers of one core."""
    return job(name, low, high, placement, kind="TFJob", memory=None, **more)


def servers(placement=None, count=1, **more):
    return group(count, count, placement, memory=None, role="ps", replicas=count, **more)


def cpus(count, cores=8):
    return [node(f"n{number}", cpu=cores) for number in range(count)]


def gpus(count, cards=4):
    return [node(f"n{number}", cpu=64, gpu=cards) for number in range(count)]


class TestScalingAlgorithm:
    """The scaling algorithm of Elastic Deep Learning."""

    def test_a_job_is_elastic_only_when_min_and_max_differ_and_only_elastic_jobs_are_scaled(self):
        """The sentence says "equals", which is a slip."""
        before = snapshot(cpus(1), [job("fixed", 2, 2, {"n0": 2}), job("free", 2, 4, {"n0": 2})])
        assert planned(before) == {"fixed": 2, "free": 4}

    def test_parameter_server_instances_are_not_scaled(self):
        """Those without a range; one with a range follows the trainers."""
        before = snapshot(cpus(2), [job("a", 1, 4, {"n0": 1}, ps=servers({"n0": 1}))])
        after = carried_out(before, Fulfillment().plan(before))
        assert [each.ps.placed for each in after.jobs] == [1]

    def test_the_fulfillment_score_is_current_less_min_over_max_less_min(self):
        assert score(group(2, 6), 3) == pytest.approx(0.25)
        assert [score(group(2, 6), size) for size in (2, 6)] == [0.0, 1.0]


class TestScalingGpuJobs:
    """The same for jobs with GPUs."""

    def test_the_controller_will_try_to_assign_all_gpus_to_the_training_jobs(self):
        jobs = [job("a", 1, 20, {"n0": 1}, gpu=1), job("b", 1, 20, {"n0": 1}, gpu=1)]
        assert planned(snapshot(gpus(2), jobs), Fulfillment()) == {"a": 4, "b": 4}

    def test_all_elastic_gpu_jobs_are_sorted_by_fulfillment_score(self):
        jobs = [job("low", 1, 5, {"n0": 1}, gpu=1), job("high", 1, 3, {"n0": 2}, gpu=1)]
        assert planned(snapshot(gpus(1), jobs)) == {"low": 2, "high": 2}

    @pytest.mark.parametrize(
        ("small", "large"),
        [
            pytest.param({"gpu": 1, "cpu": 9}, {"gpu": 2, "cpu": 1}, id="gpus per instance"),
            pytest.param({"gpu": 1, "cpu": 1}, {"gpu": 1, "cpu": 2}, id="then CPU requests"),
            pytest.param(
                {"gpu": 1, "memory": "1Gi"}, {"gpu": 1, "memory": "2Gi"}, id="then memory requests"
            ),
        ],
    )
    def test_gpus_per_instance_cpu_and_memory_requests_are_tiebreakers(self, small, large):
        """In decreasing importance, the smaller first."""
        jobs = [job("a", 1, 2, {"n0": 1}, **large), job("b", 1, 2, {"n0": 1}, **small)]
        cards = large["gpu"] + 2 * small["gpu"] + large["gpu"] - 1
        assert planned(snapshot(gpus(1, cards), jobs)) == {"a": 1, "b": 2}

    def test_an_available_gpu_is_assigned_to_the_least_fulfilled_job_unless_it_is_fulfilled(self):
        jobs = [job("full", 1, 1, {"n0": 1}, gpu=1), job("least", 1, 3, {"n0": 1}, gpu=1)]
        assert planned(snapshot(gpus(1), jobs)) == {"full": 1, "least": 3}

    def test_a_gpu_is_taken_from_the_most_fulfilled_when_another_gpu_jobs_min_is_not_satisfied(
        self,
    ):
        jobs = [
            job("most", 1, 3, {"n0": 3}, gpu=1),
            job("less", 1, 9, {"n0": 1}, gpu=1),
            job("new", 1, 1, gpu=1),
        ]
        before = snapshot(gpus(1), jobs)
        assert planned(before) == {"most": 2, "less": 1, "new": 1}
        plan = Fulfillment().plan(before)
        assert "new waits for it" in reason(plan, "most")
        assert reason(plan, "new") == "+1: it had less than its minimum of 1: room from most"

    def test_when_the_most_fulfilled_has_its_min_nobody_is_scaled_down_and_the_new_job_waits(self):
        jobs = [job("a", 2, 9, {"n0": 2}, gpu=1), job("b", 2, 9, {"n0": 2}, gpu=1)]
        before = snapshot(gpus(1), [*jobs, job("new", 1, 2, gpu=1, waiting_since_s=990.0)])
        plan = Fulfillment().plan(before)
        assert decided(plan) == {}
        assert "nobody has so much above their minimum" in note(plan, "new")


class TestScalingCpuJobs:
    """The same for jobs without."""

    def test_available_is_the_capacity_less_the_limits_and_not_the_requests(self):
        needs = {"cpu": 1, "limits": {"cpu": 2000, "memory": 1 << 30}}
        assert planned(snapshot(cpus(1), [job("a", 1, 8, {"n0": 1}, **needs)])) == {"a": 4}

    def test_all_elastic_cpu_jobs_are_sorted_by_fulfillment_score(self):
        jobs = [job("low", 1, 9, {"n0": 1}), job("high", 1, 3, {"n0": 2})]
        assert planned(snapshot(cpus(1, 6), jobs)) == {"low": 4, "high": 2}

    @pytest.mark.parametrize(
        ("small", "large"),
        [
            pytest.param({"cpu": 1}, {"cpu": 2}, id="cpu requests"),
            pytest.param({"memory": "1Gi"}, {"memory": "2Gi"}, id="then memory requests"),
        ],
    )
    def test_cpu_and_memory_requests_are_tiebreakers_in_decreasing_importance(self, small, large):
        jobs = [job("a", 1, 2, {"n0": 1}, **large), job("b", 1, 2, {"n0": 1}, **small)]
        nodes = [node("n0", cpu=4 if "cpu" in small else 3, memory="64Gi")]
        assert planned(snapshot(nodes, jobs)) == {"a": 1, "b": 2}

    def test_cpu_and_memory_are_assigned_to_the_least_fulfilled_unless_it_is_fulfilled(self):
        jobs = [job("full", 1, 1, {"n0": 1}), job("least", 1, 3, {"n0": 1})]
        assert planned(snapshot(cpus(1), jobs)) == {"full": 1, "least": 3}

    def test_cpu_and_memory_are_taken_from_the_most_fulfilled_when_a_min_is_not_satisfied(self):
        jobs = [job("most", 1, 5, {"n0": 5}), job("less", 1, 9, {"n0": 3}), job("new", 2, 2)]
        assert planned(snapshot(cpus(1), jobs)) == {"most": 3, "less": 3, "new": 2}

    def test_when_the_most_fulfilled_has_its_min_the_job_is_still_scheduled_optimistically(self):
        """As far as there is room, and only where all of it could ever be."""
        jobs = [job("old", 6, 9, {"n0": 6}), job("new", 4, 4)]
        before = snapshot(cpus(1), jobs)
        assert planned(before) == {"old": 6, "new": 2}
        assert "before there is room for all" in reason(Fulfillment().plan(before), "new")


class TestSchedulingAndScalingStrategies:
    """Those of DRAGON."""

    def test_pending_jobs_are_scheduled_in_fifo_order(self):
        jobs = [tf("late", 4, 4, submitted_s=20.0), tf("early", 4, 4, submitted_s=10.0)]
        assert planned(snapshot(cpus(1, 6), jobs), Dragon()) == {"late": 0, "early": 4}

    def test_a_job_which_cannot_meet_its_requirements_is_ignored(self):
        jobs = [tf("large", 9, 9, submitted_s=10.0), tf("small", 4, 4, submitted_s=20.0)]
        assert planned(snapshot(cpus(1), jobs), Dragon()) == {"large": 0, "small": 4}

    @pytest.mark.parametrize(("waited_s", "size"), [(29, 0), (30, 4)])
    def test_a_job_waiting_for_30_seconds_is_scheduled_if_scaling_down_makes_room(
        self, waited_s, size
    ):
        running = tf("running", 2, 8, {"n0": 8}, last_scaled_s=999.0)
        new = tf("new", 4, 4, waiting_since_s=1000.0 - waited_s)
        after = planned(snapshot(cpus(1), [running, new], last_change_s=999.0), Dragon())
        assert after == {"running": 8 - size, "new": size}

    def test_of_several_that_wait_so_long_the_longest_is_picked(self):
        running = tf("running", 4, 8, {"n0": 8})
        waiting = [tf("b", 4, 4, waiting_since_s=900.0), tf("a", 4, 4, waiting_since_s=950.0)]
        after = planned(snapshot(cpus(1), [running, *waiting]), Dragon())
        assert after == {"running": 4, "b": 4, "a": 0}

    @pytest.mark.parametrize(("idle_s", "size"), [(59, 2), (60, 6)])
    def test_running_jobs_are_scaled_up_after_a_minute_without_any_action(self, idle_s, size):
        running = tf("running", 1, 6, {"n0": 2}, last_scaled_s=1000.0 - idle_s)
        before = snapshot(cpus(1), [running], last_change_s=1000.0 - idle_s)
        assert planned(before, Dragon()) == {"running": size}

    def test_all_replicas_within_one_node_are_preferred(self):
        """Where one can hold them all, also where others come first in the order of nodes."""
        nodes = [node("a", cpu=2), node("b", cpu=2), node("c", cpu=4)]
        before = snapshot(nodes, [tf("new", 3, 3, ps=servers())])
        [new] = carried_out(before, Dragon().plan(before)).jobs
        assert (dict(new.workers.placement), dict(new.ps.placement)) == ({"c": 3}, {"c": 1})

    def test_lonely_replicas_are_terminated_first(self):
        running = tf("running", 1, 6, {"n0": 3, "n1": 3}, ps=servers({"n0": 1}), first_node="n0")
        new = tf("new", 3, 3, waiting_since_s=900.0)
        before = snapshot(cpus(2, 4), [running, new])
        [running, new] = carried_out(before, Dragon().plan(before)).jobs
        assert dict(running.workers.placement) == {"n0": 3, "n1": 1}
        assert dict(new.workers.placement) == {"n1": 3}

    def test_new_replicas_are_scheduled_where_the_parameter_server_is(self):
        running = tf("running", 1, 3, {"n1": 1}, ps=servers({"n1": 1}), last_scaled_s=0.0)
        before = snapshot(cpus(2, 4), [running], last_change_s=0.0)
        [after] = carried_out(before, Dragon().plan(before)).jobs
        assert dict(after.workers.placement) == {"n1": 3}

    def test_portions_of_gpus_share_a_card(self):
        half = replace(tf("half", 2, 2).workers, share=share(500))
        before = snapshot([node("n0", cpu=8, gpu=1)], [replace(tf("half", 2, 2), workers=half)])
        [after] = carried_out(before, Dragon().plan(before)).jobs
        assert [sorted(cards.values()) for cards in after.workers.cards.values()] == [[2]]
        assert key("half", "TFJob") == after.key

    def test_scaling_down_takes_no_more_than_is_needed_in_the_end(self):
        """Two small workers would make room for the first pod, a large one for both."""
        nodes = [node("n0", cpu=7), node("n1", cpu=12)]
        large = tf("large", 1, 9, {"n0": 2, "n1": 2}, cpu=3, ps=servers({"n1": 1}))
        small = tf("small", 1, 3, {"n0": 2, "n1": 1}, cpu="500m", ps=servers({"n1": 1}))
        new = tf("new", 2, 2, cpu=1, rules=Rules(nodes=frozenset({"n0"})), waiting_since_s=0.0)
        before = snapshot(nodes, [large, small, new])
        assert planned(before, Dragon()) == {"large": 3, "small": 3, "new": 2}
