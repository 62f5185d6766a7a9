"""Tensors spread over servers: each row is somewhere, once."""

import hypothesis.strategies as st
from hypothesis import given

from elastic.policy.updates.server_shares import MIN_CUT_BYTES, Share, Sized, Slice, spread

SIZED = st.lists(
    st.tuples(
        st.lists(st.sampled_from([0, 1, 2, 7, 100, 70_000]), max_size=2).map(tuple),
        st.sampled_from([1, 2, 4, 8]),
    ),
    min_size=1,
    max_size=12,
)


@given(parameters=SIZED, state=SIZED, num_servers=st.integers(1, 5), may_cut=st.booleans())
def test_each_row_is_on_one_server(parameters, state, num_servers, may_cut):
    made = [Sized(f"p{i}", *each) for i, each in enumerate(parameters)]
    others = [Sized(f"s{i}", *each) for i, each in enumerate(state)]
    shares = spread(made, others, num_servers, may_cut=may_cut)
    assert len(shares) == num_servers
    for tensors, slices in (
        (made, [each for share in shares for each in share.parameters]),
        (others, [each for share in shares for each in share.state]),
    ):
        for tensor in tensors:
            pieces = sorted((s.start, s.end) for s in slices if s.name == tensor.name)
            assert [start for start, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
            assert pieces[-1][1] == tensor.num_rows
            if not may_cut:
                assert len(pieces) == 1
    for share in shares:
        names = [each.name for each in share.parameters]
        assert names == [each.name for each in made if each.name in names]


@given(parameters=SIZED, num_servers=st.integers(2, 5))
def test_no_server_has_more_than_its_part_and_one_tensor(parameters, num_servers):
    made = [Sized(f"p{i}", *each) for i, each in enumerate(parameters)]
    sizes = {each.name: each for each in made}
    loads = [
        sum(
            (each.end - each.start)
            * (sizes[each.name].size_bytes // max(sizes[each.name].num_rows, 1))
            for each in share.parameters
        )
        for share in spread(made, (), num_servers, may_cut=True)
    ]
    uncut = [
        each.size_bytes
        for each in made
        if each.size_bytes < MIN_CUT_BYTES or each.num_rows < num_servers
    ]
    rows = [each.size_bytes // each.num_rows for each in made if each.num_rows]
    slack = max(uncut, default=0) + sum(rows)
    assert max(loads) <= sum(loads) / num_servers + slack


def test_large_tensors_are_cut_and_small_ones_go_to_who_has_least():
    large = Sized("large", (1000, 128), 4)
    small = [Sized(name, (size,), 4) for name, size in (("a", 10), ("b", 30), ("c", 20))]
    assert spread([large, *small], [], 2, may_cut=True) == [
        Share((Slice("large", 0, 500), Slice("b", 0, 30)), ()),
        Share((Slice("large", 500, 1000), Slice("a", 0, 10), Slice("c", 0, 20)), ()),
    ]
    assert spread([large, *small], [], 1, may_cut=True) == [
        Share(tuple(Slice(each.name, 0, each.num_rows) for each in (large, *small)), ())
    ]
