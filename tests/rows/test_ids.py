"""Ids of rows: what becomes one, and that a text has the same for ever."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic.errors import ModelDefError
from elastic.rows.ids import distinct, distinct_with_places, mixed, to_ids

TEXTS = ["", "a", "b", "item:17", "12345678", "123456789", "größe", "日本語のテキスト", "x" * 100]
PINNED = [
    -3750763034362895579,
    -4239091535741588367,
    -6259721830510333411,
    2332305955031113772,
    1599579639565927601,
    516965464615209360,
    -4895093861942967867,
    -4624938639942504853,
    8372746168832779090,
]


def test_ids_of_texts_are_those_of_every_version():
    assert to_ids(TEXTS).tolist() == PINNED


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(np.array, id="str"),
        pytest.param(lambda texts: np.array(texts, object), id="objects"),
        pytest.param(lambda texts: [text.encode() for text in texts], id="bytes"),
        pytest.param(
            lambda texts: np.array([t.encode() for t in texts], object), id="bytes objects"
        ),
        pytest.param(lambda t: np.array([t[0], *(e.encode() for e in t[1:])], object), id="mixed"),
    ],
)
def test_a_text_has_one_id_in_every_form(form):
    assert to_ids(form(TEXTS)).tolist() == PINNED


@given(st.lists(st.text(max_size=40), min_size=1))
def test_what_comes_with_a_text_does_not_matter(texts):
    together = to_ids(np.array(texts, object))
    assert together.tolist() == [int(to_ids([text])[0]) for text in texts]
    plain = {text.encode("utf-8", "surrogatepass").rstrip(b"\0") for text in texts}
    assert len(set(together.tolist())) == len(plain)


def test_shapes_stay():
    assert to_ids([["a", "b"], ["c", "d"]]).shape == (2, 2)
    assert to_ids(np.arange(6).reshape(2, 3)).shape == (2, 3)
    assert to_ids([]).shape == (0,)
    assert to_ids(np.empty((0, 3), "U5")).shape == (0, 3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", ">i4"])
def test_integers_are_ids_of_their_own(dtype):
    ids = to_ids(np.array([0, 1, 100], dtype))
    assert (ids.dtype, ids.tolist()) == (np.int64, [0, 1, 100])


def test_large_unsigned_integers_wrap():
    assert to_ids(np.array([2**64 - 1, 2**63], np.uint64)).tolist() == [-1, -(2**63)]


def test_python_integers_may_be_objects():
    assert to_ids(np.array([1, np.int32(2)], object)).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param([1.0], "float64", id="floats"),
        pytest.param([True], "bool", id="booleans"),
        pytest.param(np.array(["a", None], object), "NoneType, str", id="missing"),
        pytest.param(np.array([1, "a"], object), "int, str", id="both"),
        pytest.param(np.array([2**70], object), r"outside -2\*\*63", id="too large"),
    ],
)
def test_others_are_refused(values, told):
    with pytest.raises(ModelDefError, match=told):
        to_ids(values)


def test_mixing_keeps_words_apart():
    words = np.arange(100_000, dtype=np.uint64)
    spread = mixed(words)
    assert len(np.unique(spread)) == len(words)
    ones = np.unpackbits(spread.view(np.uint8)).mean()
    assert ones == pytest.approx(0.5, abs=0.001)


LIMITS = np.iinfo(np.int64)
SOME_IDS = st.one_of(
    st.lists(st.integers(LIMITS.min, LIMITS.max)),
    st.lists(st.integers(-5, 5)),
    # As far from each other as fits beside a place, and one more.
    st.sampled_from([-(2**60), -1, 0, 2**60, 2**61, 2**62 - 1, LIMITS.max, LIMITS.min]).flatmap(
        lambda low: st.lists(st.sampled_from([low, 0, 1]), min_size=1)
    ),
)


@given(SOME_IDS)
def test_each_id_is_once_among_the_distinct_ones_and_every_place_leads_to_it(some):
    ids = np.array(some, np.int64)
    before = ids.copy()
    found, places = distinct_with_places(ids)
    assert found.tolist() == sorted(set(some)) == distinct(ids).tolist()
    assert found[places].tolist() == some
    assert found.dtype == places.dtype == np.int64
    assert ids.tolist() == before.tolist()


def test_distinct_ids_are_those_of_all_dimensions():
    assert distinct(np.array([[3, 1], [1, 2]])).tolist() == [1, 2, 3]
