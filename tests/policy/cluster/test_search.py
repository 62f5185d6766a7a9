"""What is remembered, or done for several at once, comes to what looking at each one comes to."""

from itertools import islice
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_clusters import clusters, crowded

from elastic.policy.placement import rooms
from elastic.policy.placement.board import Board
from elastic.policy.placement.placing import FreeNodes
from elastic.policy.placement.rooms import MaxTree
from elastic.policy.scaling import fulfillment
from elastic.policy.scaling.standings import Standings, Turns

FEW = settings(max_examples=50, derandomize=True)
MORE = settings(max_examples=500, derandomize=True)

AMOUNTS = st.integers(0, 4)
ROWS = st.lists(st.lists(AMOUNTS, min_size=2, max_size=2), min_size=1, max_size=9)
NEEDS = st.sampled_from(
    [((0, 1),), ((0, 3),), ((1, 2),), ((0, 1), (1, 1)), ((0, 2), (1, 3)), ((0, 4), (1, 4))]
)
STEPS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), AMOUNTS, NEEDS), max_size=60)


def holding(rows, needs):
    return [at for at, row in enumerate(rows) if all(row[column] >= n for column, n in needs)]


@FEW
@given(rows=ROWS, steps=STEPS, num_known=st.sampled_from([1, 2, 32]), num_asked=st.integers(0, 9))
def test_what_is_remembered_of_rows_is_what_looking_at_all_of_them_finds(
    rows, steps, num_known, num_asked
):
    with patch.object(rooms, "_MOST_SOUGHT", num_known):
        tree = MaxTree(rows, 2)
        for at, column, amount, needs in steps:
            row = rows[at % len(rows)]
            is_more, row[column] = amount > row[column], amount
            tree.changed(at % len(rows), is_more=is_more)
            found = holding(rows, needs)
            assert tree.first(needs) == next(iter(found), None)
            # Who asks for some may stop before the last.
            assert list(islice(tree.all(needs), num_asked)) == found[:num_asked]
            assert tree.first(needs) == next(iter(found), None)


@FEW
@given(rows=ROWS, steps=STEPS)
def test_a_row_in_the_place_of_another_is_found_by_what_it_has(rows, steps):
    tree, rows = MaxTree(rows, 2), [list(row) for row in rows]
    for at, column, amount, needs in steps:
        row = rows[at % len(rows)] = list(rows[at % len(rows)])
        row[column] = amount
        tree.replace(at % len(rows), row)
        assert list(tree.all(needs)) == holding(rows, needs)


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
@given(snapshot=clusters(max_jobs=3))
def test_what_alike_jobs_were_given_at_once_is_taken_back_whole(snapshot):
    board = Board(crowded(snapshot, 3))
    before, free = {}, [list(row) for row in board.rooms.free]
    loads, mark = [list(each) for each in board.loads], board.mark()
    for job in board.jobs:
        before[job.workers] = dict(job.workers.counts)
    for needs in {(each.shape, each.limits) for each in before if each.shape.share is None}:
        alike = [each for each in before if (each.shape, each.limits) == needs]
        node = board.find(needs[0])
        if node is not None:
            board.add_to_each(alike[: board.rooms.count(needs[0], node, len(alike))], node)
    board.undo(mark)
    assert {each: each.counts for each in before} == before
    assert (board.rooms.free, board.loads) == (free, loads)


@FEW
@given(snapshot=clusters())
def test_turns_come_in_the_order_of_standings_whoever_has_grown_meanwhile(snapshot):
    board = Board(snapshot)
    standings = Standings(board)
    able = [workers for workers in standings.job_of if workers.placed < workers.group.max]
    turns = Turns(standings, standings.job_of)
    waiting = {workers: standings.order(workers) for workers in able}
    for workers in turns:
        assert waiting.pop(workers) <= min(waiting.values(), default=(float("inf"), 0))
        node = board.find(workers.shape)
        if node is not None:
            board.add(workers, node)
            turns.add((workers,))
            if workers.placed < workers.group.max:
                waiting[workers] = standings.order(workers)
    assert not waiting


class OneByOne(fulfillment._Planning):
    """Alike jobs grow as others do, each by itself."""

    def _add_to_each(self, alike):
        return [workers for workers in alike if self._add_one(workers)]


@MORE
@given(snapshot=clusters(max_jobs=4), times=st.integers(2, 4))
def test_alike_jobs_that_grow_together_are_what_they_are_one_by_one(snapshot, times):
    crowd, policy = crowded(snapshot, times), fulfillment.Fulfillment()
    assert policy.plan(crowd) == OneByOne(policy, crowd).plan()


@FEW
@given(snapshot=clusters(), counts=st.lists(st.integers(1, 4), max_size=8))
def test_the_tightest_and_the_roomiest_node_are_those_of_all_that_have_room(snapshot, counts):
    free = FreeNodes(snapshot.nodes)
    free.open()
    names = [each.name for each in snapshot.nodes]
    for job, count in zip(snapshot.jobs, counts, strict=False):
        need = free.need(job.workers.requests, job.workers.rules)

        def level(name, need=need):
            return free._rows[name][need.leading] // 1000 if need.leading is not None else 0

        def able(count, need=need):
            allowed = names if need.allowed is None else need.allowed
            return [each for each in names if each in allowed and free.fits(each, need) >= count]

        tightest, roomiest = free.tightest(need, count, ()), free.roomiest(need, ())
        assert (tightest is None) == (not able(count))
        assert (roomiest is None) == (not able(1))
        if roomiest is not None:
            assert level(roomiest) == max(map(level, able(1)))
        if tightest is not None:
            assert level(tightest) == min(map(level, able(count)))
            free.take(tightest, need, count)
