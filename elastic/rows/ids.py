"""Ids of rows: integers as they are, texts hashed to integers.

The hash is part of what a job keeps: a text has the same id in every process, in every version of
this project, and on every machine.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.errors import ModelDefError
from elastic.rows.base import Ids

Words: TypeAlias = NDArray[np.uint64]
"""Numbers of 64 bits, of any shape."""

_WORD_BYTES: Final = 8
_STEP: Final = 0x9E3779B97F4A7C15
_MOST_BITS: Final = 63
_EMPTY_TEXT: Final = 0xCBF29CE484222325


def to_ids(values: Any) -> Ids:
    """Ids of an array's elements, in its shape.

    Args:
        values: Integers of any type, of which those of uint64 wrap above 2**63; or texts, str or
            bytes, which have equal ids where their UTF-8 is equal. NULs at a text's end do not
            count.

    Raises:
        ModelDefError: They are something else.
    """
    array = np.asarray(values)
    if not array.size:
        # NumPy takes an empty list for floats.
        return np.empty(array.shape, np.int64)
    if array.dtype.kind == "O":
        array = _of_one_kind(array)
    if array.dtype.kind in "iu":
        return array.astype(np.int64, copy=False)
    if array.dtype.kind in "SUT":
        return _hashed(_as_bytes(array).reshape(-1)).view(np.int64).reshape(array.shape)
    raise ModelDefError(
        f"ids of an embedding are of type {array.dtype}: give integers or texts, such as "
        "numbers cut into ranges by numpy.digitize"
    )


def distinct(ids: Ids) -> Ids:
    """Each id once, ascending.

    Sorted and compared: `numpy.unique` fills a hash table from 2.3 on, at 10 to 50 times the time.
    """
    in_order = np.sort(ids, axis=None)
    return in_order[_begins(in_order)]


def distinct_with_places(ids: Ids) -> tuple[Ids, Ids]:
    """Each id of an array of one dimension once, ascending, and for each of all which one it is."""
    bits = max(len(ids) - 1, 0).bit_length()
    lowest, highest = (int(ids.min()), int(ids.max())) if len(ids) else (0, 0)
    if (highest - lowest).bit_length() + bits > _MOST_BITS:
        found, places = np.unique(ids, return_inverse=True)
        return found, places
    # An id and its place in one number: these are sorted in half the time of an `argsort`.
    packed = (ids - lowest) << bits
    packed |= np.arange(len(ids))
    packed.sort()
    order = packed & ((1 << bits) - 1)
    packed >>= bits
    begins = _begins(packed)
    places = np.empty(len(ids), np.int64)
    places[order] = np.cumsum(begins) - 1
    return packed[begins] + lowest, places


def _begins(in_order: Ids) -> NDArray[np.bool_]:
    """Which of ascending numbers are not the one before them."""
    begins = np.ones(len(in_order), np.bool_)
    np.not_equal(in_order[1:], in_order[:-1], out=begins[1:])
    return begins


def mixed(words: Words) -> Words:
    """Each word's bits spread over the whole word; no two words give the same.

    Source:
        Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    words = words ^ (words >> np.uint64(30))
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def random_words(seed: str, ids: Ids, width: int) -> Words:
    """Random words of shape (ids, width), each of the seed, its id and its place."""
    key = mixed(to_ids([seed]).view(np.uint64))
    rows = mixed(mixed(ids.view(np.uint64)) ^ key)
    places = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(_STEP)
    return mixed(rows[:, np.newaxis] + places)


def _of_one_kind(array: NDArray[Any]) -> NDArray[Any]:
    """Python objects as an array of texts or of integers."""
    kinds = set(map(type, array.reshape(-1)))
    if kinds == {bytes}:
        return array.astype(np.bytes_)
    if all(issubclass(kind, (str, bytes)) for kind in kinds):
        return _as_objects_in_utf8(array)
    if all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds):
        return _as_integers(array)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ModelDefError(
        f"ids of an embedding are of the types {names}: give integers or texts alone, and one of "
        "your own for what is missing"
    )


def _as_integers(array: NDArray[Any]) -> Ids:
    try:
        return array.astype(np.int64)
    except OverflowError as error:
        raise ModelDefError(
            f"an id of an embedding is outside -2**63 to 2**63 - 1 ({error}): give it as a text"
        ) from error


def _as_objects_in_utf8(array: NDArray[Any]) -> NDArray[np.bytes_]:
    texts = [
        text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        for text in array.reshape(-1)
    ]
    return np.array(texts, np.bytes_).reshape(array.shape)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.bytes_]:
    if array.dtype.kind == "S":
        return array
    try:
        # Of ASCII, which most are, ten times as fast as the way below.
        return array.astype(np.bytes_)
    except UnicodeEncodeError:
        return np.char.encode(array.astype(np.str_), "utf-8", "surrogatepass")


def _hashed(texts: NDArray[np.bytes_]) -> Words:
    """A word for each text: eight of its bytes at a time, whatever the longest text is."""
    num_words = -(-texts.dtype.itemsize // _WORD_BYTES)
    wide = texts.astype(f"S{max(num_words, 1) * _WORD_BYTES}")
    words = wide.view("<u8").reshape(len(texts), -1).astype(np.uint64, copy=False)
    lengths = np.char.str_len(wide)
    hashed = np.full(len(texts), _EMPTY_TEXT, np.uint64)
    for index in range(words.shape[1]):
        has_more = lengths > index * _WORD_BYTES
        hashed[has_more] = mixed(hashed[has_more] ^ words[has_more, index])
    return hashed
