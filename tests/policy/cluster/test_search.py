"""What is remembered, or done for several at once, comes to what looking at each one comes to."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_clusters import clusters

from elastic.policy.cluster.board import Board
from elastic.policy.cluster.search import MaxTree
from elastic.policy.cluster.standings import Standings, Turns

FEW = settings(max_examples=50, derandomize=True)

AMOUNTS = st.integers(0, 4)
ROWS = st.lists(st.lists(AMOUNTS, min_size=2, max_size=2), min_size=1, max_size=9)
NEEDS = st.sampled_from(
    [((0, 1),), ((0, 3),), ((1, 2),), ((0, 1), (1, 1)), ((0, 2), (1, 3)), ((0, 4), (1, 4))]
)
STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), AMOUNTS, NEEDS), max_size=60)


def holding(rows, needs):
    return [at for at, row in enumerate(rows) if all(row[column] >= n for column, n in needs)]


@FEW
@given(rows=ROWS, steps=STEPS)
def test_a_row_that_is_remembered_is_the_first_of_all_that_have_enough(rows, steps):
    tree = MaxTree(rows, 2)
    for at, column, amount, needs in steps:
        row = rows[at % len(rows)]
        is_more, row[column] = amount > row[column], amount
        tree.changed(at % len(rows), is_more=is_more)
        found = holding(rows, needs)
        assert tree.first(needs) == next(iter(found), None)
        assert list(tree.all(needs)) == found
        assert tree.first(needs) == next(iter(found), None)


@FEW
@given(snapshot=clusters(), counts=st.lists(st.integers(1, 4), max_size=8))
def test_several_alike_pods_put_on_a_node_at_once_leave_what_they_leave_one_by_one(
    snapshot, counts
):
    whole, single = Board(snapshot), Board(snapshot)
    shapes = [each.workers for each in whole.jobs if each.workers.shape.share is None]
    for number, (seats, count) in enumerate(zip(shapes, counts, strict=False)):
        node = whole.find(seats.shape)
        twin = next(each.workers for each in single.jobs if each.job.key == seats.job)
        assert single.find(twin.shape) == node, number
        if node is None:
            continue
        at_once = whole.rooms.count(seats.shape, node, count)
        whole.add(seats, node, count=at_once)
        for _ in range(at_once):
            single.add(twin, node)
        assert whole.rooms.free == single.rooms.free
        assert (whole.loads, seats.counts) == (single.loads, twin.counts)


@FEW
@given(snapshot=clusters())
def test_turns_come_in_the_order_of_standings_whoever_has_grown_meanwhile(snapshot):
    board = Board(snapshot)
    standings = Standings(board)
    turns, waiting = Turns(standings), {}
    for workers in standings.job_of:
        turns.add(workers)
        waiting[workers] = standings.order(workers)
    for workers in turns:
        assert waiting.pop(workers) <= min(waiting.values(), default=(float("inf"), 0))
        node = board.find(workers.shape)
        if node is not None and workers.placed < workers.group.max:
            board.add(workers, node)
            turns.add(workers)
            waiting[workers] = standings.order(workers)
    assert not waiting
