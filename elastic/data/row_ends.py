"""Finding where CSV rows end without parsing them.

Rows are what Python's `csv` module makes of the file, whatever the file holds; a test compares
both on random text. A parse takes many times as long as reading, so this works on one bit per
byte of a block, 64 bits at a time.
"""

import re
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elastic.data.scan import Marks

Bits: TypeAlias = NDArray[np.uint64]
"""One bit per byte of a block, lowest first, and at least one more of padding."""

_ONE: Final = np.uint64(1)
_LAST: Final = np.uint64(63)

_FIELD_QUOTES: Final = re.compile(rb"(B.?+(?:A.?+)*+)")
"""Quotes of quoted fields among all quotes of a block, each one a letter.

B stands at the begin of a field, A right after another quote, N anywhere else. Outside quotes
only B opens a field; inside, any quote closes it; right after a closing one, A opens it again (a
doubled quote). All other quotes are characters like any other, as in `5" pipe`.
"""


class RowEnds:
    """Marks where the rows of a block end; blank lines are no rows."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = ord(delimiter)

    def __call__(self, block: bytes, at_eof: bool) -> Marks:
        data = np.frombuffer(block, np.uint8)
        size = len(block)
        breaks = _bits(data == ord("\n"))
        returns = _bits(data == ord("\r")) if b"\r" in block else None
        if returns is not None:
            # Whether one at the end of a block is half of a line end is seen with the next block.
            line_feeds = breaks if at_eof else breaks | _bit(size, len(breaks))
            breaks = breaks | (returns & ~_one_earlier(line_feeds))
        ends_inside_quotes = False
        if b'"' in block:
            quotes = _bits(data == ord('"'))
            delimiters = _bits(data == self._delimiter)
            inside = _inside_quotes(quotes, _one_later(breaks | delimiters))
            ends_inside_quotes = _has(inside, size - 1)
            breaks &= ~inside
        marks = _marks(breaks & ~_blank(breaks, returns))[:size]
        if at_eof and size and not ends_inside_quotes and not _has(breaks, size - 1):
            marks[-1] = True
        return marks


def _inside_quotes(quotes: Bits, begins: Bits) -> Bits:
    """The bytes inside quoted fields, with their opening quote and without the closing one.

    Args:
        quotes: All quotes of the block.
        begins: Where fields begin, the first one at the begin of the block excepted.
    """
    inside = _odd_so_far(quotes)
    begins = begins | _bit(0, len(begins))
    after_quote = _one_later(quotes)
    if not (quotes & inside & ~begins & ~after_quote).any():
        return inside
    # Some quote is no field's: sort them out one by one.
    positions = np.flatnonzero(_marks(quotes))
    letters = np.full(len(positions), ord("N"), np.uint8)
    letters[_marks(begins)[positions]] = ord("B")
    letters[_marks(after_quote)[positions]] = ord("A")
    # Splitting by a group gives literal and field quotes alternately.
    lengths = list(map(len, _FIELD_QUOTES.split(letters.tobytes())))
    is_literal = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    field_quotes = _marks(quotes)
    field_quotes[positions[is_literal]] = False
    return _odd_so_far(_words(np.packbits(field_quotes, bitorder="little"), len(quotes)))


def _blank(breaks: Bits, returns: Bits | None) -> Bits:
    """The breaks of lines that hold nothing but their line end."""
    row_begins = _one_later(breaks) | _bit(0, len(breaks))
    blank = breaks & row_begins
    if returns is not None:
        blank |= breaks & _one_later(returns & row_begins)
    return blank


def _bits(is_set: Marks) -> Bits:
    return _words(np.packbits(is_set, bitorder="little"), len(is_set) // 64 + 1)


def _words(packed: NDArray[np.uint8], length: int) -> Bits:
    words = np.zeros(length, "<u8")
    words.view(np.uint8)[: len(packed)] = packed
    return words


def _marks(bits: Bits) -> Marks:
    return np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)


def _bit(place: int, length: int) -> Bits:
    bits = np.zeros(length, "<u8")
    bits[place // 64] = _ONE << np.uint64(place % 64)
    return bits


def _has(bits: Bits, place: int) -> bool:
    return bool(bits[place // 64] >> np.uint64(place % 64) & _ONE)


def _one_later(bits: Bits) -> Bits:
    later = bits << _ONE
    later[1:] |= bits[:-1] >> _LAST
    return later


def _one_earlier(bits: Bits) -> Bits:
    earlier = bits >> _ONE
    earlier[:-1] |= bits[1:] << _LAST
    return earlier


def _odd_so_far(bits: Bits) -> Bits:
    """Tell for each place whether the number of set bits up to and including it is odd."""
    odd = bits.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        odd ^= odd << np.uint64(shift)
    is_odd_after = np.bitwise_xor.accumulate(odd >> _LAST)
    odd[1:] ^= np.uint64(0) - is_odd_after[:-1]
    return odd
