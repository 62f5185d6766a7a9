"""Ids keep their positions while others come and go."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from elastic.rows.index import FEWEST_BITS, IdIndex

STEPS = st.lists(
    st.tuples(st.booleans(), st.sets(st.integers(-4, 60), max_size=30)), min_size=1, max_size=30
)


def array(ids):
    return np.array(sorted(ids), np.int64)


def move(index, kept, positions):
    """Remove, and treat an array beside the index as it says."""
    moved, places = index.remove(positions)
    kept[places] = kept[moved]
    return kept[: len(index)]


@given(STEPS)
def test_every_id_is_found_where_it_is(steps):
    index, kept = IdIndex(), np.empty(0, np.int64)
    wanted = set()
    for is_removal, ids in steps:
        positions = index.find(array(ids))
        assert ((positions >= 0) == [each in wanted for each in sorted(ids)]).all()
        if is_removal:
            kept = move(index, kept, positions[positions >= 0])
            wanted -= ids
        else:
            index.add(array(ids)[positions < 0])
            kept = np.concatenate([kept, array(ids)[positions < 0]])
            wanted |= ids
        assert sorted(index.ids.tolist()) == sorted(wanted)
        assert kept.tolist() == index.ids.tolist()
        assert index.ids[index.find(array(wanted))].tolist() == sorted(wanted)


def test_ids_that_come_and_go_take_no_more_room():
    """Cells of removed ids are counted, and used again."""
    index = IdIndex()
    for start in range(0, 1_000_000, 400):
        index.add(np.arange(start, start + 400))
        index.remove(np.arange(len(index)))
    assert index.size_bytes() <= 3 * 8 << FEWEST_BITS
    assert (index.find(np.arange(999_000, 1_000_000)) < 0).all()
