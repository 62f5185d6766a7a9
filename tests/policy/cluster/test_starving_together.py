"""Under DRAGON jobs that starve at the same time share what is free before others give any."""

from support.clusters import decided, job, node, note, reason, snapshot

from elastic.policy.cluster import carried_out
from elastic.policy.placement.board import Board
from elastic.policy.scaling.dragon import Dragon


def starving(name, low, high, waited_s, **more):
    return job(name, low, high, waiting_since_s=1000.0 - waited_s, **more)


def planned(*jobs, cores=8, **more):
    before = snapshot([node("n0", cpu=cores, **more)], jobs)
    return before, Dragon().plan(before)


def test_the_first_leaves_the_minimum_of_the_next_ones():
    """It would have had all of it, and `runs`, whose workers are larger, would have given one."""
    runs = job("runs", 1, 2, {"n0": 2}, cpu=2)
    _, plan = planned(
        runs, starving("first", 1, 9, 90), starving("second", 1, 9, 60), starving("third", 1, 1, 40)
    )
    assert decided(plan) == {"first": 2, "second": 1, "third": 1}
    assert reason(plan, "first") == "+2: there is room on n0"


def test_nothing_is_left_for_who_does_not_starve_yet():
    _, plan = planned(starving("first", 1, 9, 90), starving("second", 1, 1, 20))
    assert decided(plan) == {"first": 8}
    assert "others make room in 10 s" in note(plan, "second")


def test_what_nobody_can_have_is_kept_for_nobody():
    """Else `first` would begin with one on the first node, and be on both."""
    before = snapshot(
        [node("n0", cpu=3), node("n1", cpu=8)],
        [starving("first", 1, 8, 90), starving("hopeless", 99, 99, 60)],
    )
    [first, _] = carried_out(before, Dragon().plan(before)).jobs
    assert first.workers.placement == {"n1": 8}


def test_what_was_kept_in_vain_is_for_those_who_were_served():
    """There are two cores for a worker of `wide`, on no one node."""
    before = snapshot(
        [node("n0", cpu=3), node("n1", cpu=3)],
        [starving("first", 1, 9, 90), starving("wide", 1, 1, 60, cpu=4)],
    )
    assert decided(Dragon().plan(before)) == {"first": 6}


def test_cards_that_no_core_is_left_for_are_not_counted():
    """`first` has the cards that can be used but one; `second` needs nobody to give it that."""
    nodes = [node("stranded", cpu=1, gpu=8), node("usable", cpu=8, gpu=4)]
    cards = {"cpu": 2, "gpu": 1}
    runs = job("runs", 1, 1, {"stranded": 1}, cpu=1)
    before = snapshot(
        nodes, [runs, starving("first", 1, 9, 90, **cards), starving("second", 1, 9, 60, **cards)]
    )
    assert decided(Dragon().plan(before)) == {"first": 3, "second": 1}
    board = Board(before)
    [shape] = {each.workers.shape for each in board.jobs if each.key.endswith(("first", "second"))}
    usable = dict(zip(board.rooms.columns, board.rooms.usable([shape]), strict=True))
    assert (usable["nvidia.com/gpu"], usable["cpu"]) == (4000, 8000)


def test_a_job_that_lost_a_part_has_it_back_before_others_have_more_than_they_need():
    whole = job("lost", 4, 4, {"n0": 2}, waiting_since_s=900.0)
    before, plan = planned(starving("first", 1, 9, 300), whole)
    after = carried_out(before, plan)
    assert {each.name: each.workers.placed for each in after.jobs} == {"first": 4, "lost": 4}
    assert reason(plan, "lost") == "+2: waited for 100 s, there is room"
