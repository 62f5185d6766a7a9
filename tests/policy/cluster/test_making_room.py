"""Who leaves a node is who would not come back if workers were taken one by one."""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.clusters import job, node, snapshot

from elastic.policy.placement.board import Board
from elastic.policy.placement.making_room import make_room

amounts = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 2))
"""CPU, memory in Gi and GPUs."""

running = st.lists(st.tuples(amounts, st.integers(0, 2), st.integers(0, 2)), max_size=6)
"""By the order in which they leave: what a worker has, how many stay and how many may leave."""


@settings(max_examples=500)
@given(amounts, amounts.filter(any), running)
@example((0, 0, 0), (2, 0, 0), [((1, 0, 0), 0, 2), ((2, 0, 0), 0, 1)])
@example((0, 0, 0), (2, 0, 1), [((2, 0, 0), 0, 1), ((2, 0, 1), 0, 1)])
@example((0, 0, 0), (1, 0, 1), [((1, 0, 0), 0, 1), ((0, 0, 1), 0, 1)])
@example((0, 0, 0), (2, 2, 0), [((1, 2, 0), 0, 1), ((1, 2, 0), 0, 1), ((2, 2, 0), 0, 1)])
def test_who_leaves_is_who_would_not_come_back(free, needs, jobs):
    jobs = [each for each in jobs if each[1] + each[2]]
    board = _board(free, needs, jobs)
    workers = {f"j{number}": board.jobs[number].workers for number in range(len(jobs))}
    names = {seats: name for name, seats in workers.items()}

    left = make_room(
        board,
        board.jobs[-1].workers.shape,
        0,
        lambda seats, _: seats.placed - seats.group.min,
        lambda seats, _: (names[seats],),
    )

    expected = _one_by_one(free, needs, jobs)
    assert (None if left is None else sorted(names[seats] for seats in left)) == expected
    assert {name: seats.placed for name, seats in workers.items()} == {
        f"j{number}": stay + leave - (expected or []).count(f"j{number}")
        for number, (_, stay, leave) in enumerate(jobs)
    }


def test_of_two_that_left_for_one_the_one_comes_back():
    board = _board((0, 0, 0), (1, 0, 0), [((1, 0, 0), 0, 1), ((1, 0, 0), 0, 1)])
    first, second, new = (each.workers for each in board.jobs)
    mark = board.mark()
    for seats in (first, second):
        board.remove(seats, 0)
    board.add(new, 0)
    board.return_needless(mark)
    assert (first.placed, second.placed, new.placed) == (0, 1, 1)


def _board(free, needs, jobs):
    """One node, with as much free, and one job more that waits, behind all others."""
    total = [free[at] + sum(of[at] * (stay + leave) for of, stay, leave in jobs) for at in range(3)]
    running = [
        _job(f"j{number}", of, stay, {"n": stay + leave})
        for number, (of, stay, leave) in enumerate(jobs)
    ]
    cpu, memory, gpu = total
    nodes = [node("n", cpu, f"{memory}Gi", gpu)]
    return Board(snapshot(nodes, [*running, _job("new", needs, 1, {})]))


def _job(name, of, low, placement):
    cpu, memory, gpu = of
    return job(name, low, 9, placement, cpu=cpu, memory=f"{memory}Gi", gpu=gpu)


def _one_by_one(free, needs, jobs):
    """Of those that have something of what is lacking the first, until it fits; then all of them
    are put back where it still fits, the last first. The names of who is gone; None where not."""
    free, can = list(free), [leave for _, _, leave in jobs]
    gone = []
    while lacking := _lacking(free, needs):
        able = [
            number
            for number, (of, _, _) in enumerate(jobs)
            if can[number] and any(of[at] for at in lacking)
        ]
        if not able:
            return None
        can[able[0]] -= 1
        free = [have + more for have, more in zip(free, jobs[able[0]][0], strict=True)]
        gone.append(able[0])
    for number in reversed(list(gone)):
        less = [have - own for have, own in zip(free, jobs[number][0], strict=True)]
        if min(less) >= 0 and not _lacking(less, needs):
            free = less
            gone.remove(number)
    return sorted(f"j{number}" for number in gone)


def _lacking(free, needs):
    return [at for at in range(3) if free[at] < needs[at]]
