"""Pods with parts of cards: each column gives out what there is and no more, and takes it back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.clusters import node

from benchmarks.shared_cards.columns import COLUMNS
from benchmarks.shared_cards.pods import Cards, arriving, asked, made
from benchmarks.shared_cards.turnover import given_out, recorded, turns_of

every_column = pytest.mark.parametrize("name", COLUMNS)


def pods_of(cards, *millis):
    """The first pods of so many thousandths each, as they come."""
    found = (next(each for each in cards.pods if asked(each) == milli) for milli in millis)
    return [arriving(pod, number) for number, pod in enumerate(found)]


@every_column
def test_parts_share_a_card_and_what_ends_makes_room(name):
    cards, column = made(4, 1), COLUMNS[name]([node("n", 96, "512Gi", gpu=1)])
    parts = pods_of(cards, 470, 470, 320)
    assert column.come(parts) == {parts[0].name, parts[1].name}
    column.leave([parts[0].name])
    [again] = pods_of(cards, 320)
    assert column.come([again]) == {again.name}


@every_column
def test_a_card_of_which_parts_are_in_use_is_not_given_out_whole(name):
    cards, column = made(4, 1), COLUMNS[name]([node("n", 96, "512Gi", gpu=1)])
    part, whole = pods_of(cards, 160, 1000)
    assert column.come([part, whole]) == {part.name}


def test_best_fit_leaves_the_least_of_a_card_and_first_fit_takes_the_first():
    cards, nodes = made(4, 1), [node("n", 96, "512Gi", gpu=2)]
    pods = pods_of(cards, 320, 810, 160, 590)
    # After the first two best fit has put the third beside 810, and first fit beside 320.
    assert COLUMNS["best fit"](nodes).come(pods) == {each.name for each in pods}
    assert COLUMNS["first fit"](nodes).come(pods) == {each.name for each in pods[:3]}


@every_column
@settings(max_examples=5, derandomize=True)
@given(seed=st.integers(0, 99))
def test_no_more_is_given_out_than_there_is(name, seed):
    cards = made(5, seed)
    parts = given_out(COLUMNS[name](cards.nodes), cards, turns_of(cards, 3, seed))
    assert all(0 < part <= 1 for part in parts)


def test_pods_come_and_go_alike_whoever_places_them():
    cards = made(5, 1)
    assert turns_of(cards, 3, 7) == turns_of(cards, 3, 7) != turns_of(cards, 3, 8)


def test_dragon_gives_out_as_much_of_the_cards_as_first_fit_where_pods_come_and_go():
    """Means of generated clusters: of one of them either may have more by chance."""
    found = dict.fromkeys(("dragon", "first fit"), 0.0)
    for seed in range(6):
        cards = made(20, seed)
        turns = turns_of(cards, 10, seed)
        for name in found:
            found[name] += sum(given_out(COLUMNS[name](cards.nodes), cards, turns)[1:])
    assert found["dragon"] >= found["first fit"]


def test_as_recorded_nobody_leaves():
    cards = made(5, 1)
    [turn] = recorded(Cards(cards.nodes, cards.pods[:3]))
    assert [each.submitted_s for each in turn.pods] == [0.0, 1.0, 2.0]
