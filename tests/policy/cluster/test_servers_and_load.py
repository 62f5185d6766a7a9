"""Parameter servers that follow their workers, and room that is given back above `max_load`."""

from dataclasses import replace

import pytest
from support.clusters import amounts, group, job, node, reason, sizes, snapshot

from elastic.policy.cluster import Rules, carried_out
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.standings import servers_for

ZONE = {name: Rules(node_selector={"zone": name}) for name in "ab"}


def servers(low, high, placement=None, **more):
    return group(low, high, placement, role="ps", **more)


def after(before, max_load=1.0):
    return carried_out(before, Fulfillment(max_load=max_load).plan(before))


def servers_of(snapshot):
    return {each.name: each.ps.placed for each in snapshot.jobs if each.ps is not None}


@pytest.mark.parametrize(
    ("num_workers", "expected"),
    [(0, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 3)],
)
def test_servers_have_the_part_of_their_range_that_the_workers_have_of_theirs(
    num_workers, expected
):
    """Two to six workers, one to three servers: half a server rounds up."""
    assert servers_for(job("a", 2, 6, ps=servers(1, 3)), num_workers) == expected


@pytest.mark.parametrize(
    ("workers", "range_", "expected"),
    [
        pytest.param((2, 6), (2, 2), 2, id="no range of their own"),
        pytest.param((4, 4), (1, 3), 1, id="nothing to follow"),
    ],
)
def test_servers_without_a_range_on_either_side_stay_at_their_minimum(workers, range_, expected):
    assert servers_for(job("a", *workers, ps=servers(*range_)), 6) == expected


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        pytest.param(9, (6, 3), id="room for all"),
        pytest.param(7, (4, 2), id="no room for a worker and the server that comes with it"),
        pytest.param(8, (5, 3), id="room for both"),
        pytest.param(4, (2, 1), id="no room for the next worker's server"),
    ],
)
def test_a_worker_comes_only_with_the_servers_that_go_with_it(cores, expected):
    a = job("a", 2, 6, {"n0": 2}, ps=servers(1, 3, {"n0": 1}))
    found = after(snapshot([node("n0", cpu=cores)], [a]))
    assert (sizes(found)["a"], servers_of(found)["a"]) == expected


def test_servers_leave_with_the_workers_that_are_taken_for_another_job():
    a = job("a", 2, 6, {"n0": 6}, ps=servers(1, 3, {"n0": 3}))
    before = snapshot([node("n0", cpu=9)], [a, job("new", 3, 3)])
    found = after(before)
    # Two workers give two cores, and the server that was theirs the third.
    assert (sizes(found), servers_of(found)) == ({"a": 4, "new": 3}, {"a": 2})


def test_servers_follow_a_maximum_that_was_lowered():
    a = job("a", 2, 4, {"n0": 6}, ps=servers(1, 5, {"n0": 5}))
    roomy = snapshot([node("n0", cpu=20)], [a])
    assert servers_of(after(roomy)) == {"a": 5}
    lowered = replace(a, ps=servers(1, 3, {"n0": 5}))
    found = after(snapshot([node("n0", cpu=20)], [lowered]))
    assert (sizes(found)["a"], servers_of(found)["a"]) == (4, 3)


class TestMoreThanMaxLoad:
    """What was given out while there was more, or while it counted less."""

    def test_a_cluster_that_shrank_is_relieved_by_the_most_fulfilled(self):
        """Twenty cores when it was given out, twelve now: 97% of them are eleven."""
        nodes = [node("n0", cpu=12), node("n1", cpu=8, is_ready=False)]
        jobs = [job("most", 1, 9, {"n0": 7}), job("least", 1, 9, {"n0": 5})]
        before = snapshot(nodes, jobs)
        assert sizes(after(before, 0.97)) == {"most": 6, "least": 5}
        told = reason(Fulfillment().plan(before), "most")
        assert told.startswith("-1: 100.0% of CPU is given out, more than max_load")

    def test_limits_that_were_raised_count_at_once(self):
        """Their requests still fit the node; of ten cores their limits are twelve."""
        raised = amounts(2, "1Gi")
        jobs = [
            job("most", 1, 5, {"n0": 4}, limits=raised),
            job("least", 1, 5, {"n0": 2}, limits=raised),
        ]
        assert sizes(after(snapshot([node("n0", cpu=10)], jobs))) == {"most": 3, "least": 2}

    def test_memory_counts_as_cpu_does(self):
        jobs = [job("a", 1, 9, {"n0": 8}, memory="4Gi")]
        assert sizes(after(snapshot([node("n0", cpu=64, memory="32Gi")], jobs), 0.75)) == {"a": 6}

    def test_servers_go_with_the_workers_that_are_given_back(self):
        a = job("a", 2, 6, {"n0": 6}, ps=servers(1, 3, {"n0": 3}))
        found = after(snapshot([node("n0", cpu=9)], [a]), 0.8)
        # Seven of nine cores are left.
        assert (sizes(found)["a"], servers_of(found)["a"]) == (4, 2)

    def test_nobody_gives_what_is_below_the_minimum(self):
        before = snapshot([node("n0", cpu=4)], [job("a", 4, 9, {"n0": 4})])
        assert Fulfillment(max_load=0.5).plan(before).decisions == ()

    def test_nobody_gives_on_nodes_that_are_not_too_full(self):
        """Each bound is that of the nodes on which a job's pods may run."""
        full = node("n0", cpu=4, labels={"zone": "a"})
        jobs = [
            job("there", 1, 4, {"n0": 4}, rules=ZONE["a"]),
            job("elsewhere", 1, 4, {"n1": 4}, rules=ZONE["b"]),
        ]
        before = snapshot([full, node("n1", cpu=16, labels={"zone": "b"})], jobs)
        assert sizes(after(before, 0.97)) == {"there": 3, "elsewhere": 4}
