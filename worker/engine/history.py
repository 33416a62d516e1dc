"""Tokens in the order they came, and the places where their last few stood before. Bounded. Pure: no model.

A ring: the oldest tokens make room. For grams of 8, 4 and 2 tokens each place knows the one before it of the same hash,
so that nothing is ever searched through: a token costs the same at a thousand remembered ones as at a million.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterable, Sequence
from zlib import crc32

#: Grams by which places are found, and the longer matches that are told apart among the places found.
GRAMS = {8: (16, 32), 4: (6,), 2: (3,)}
#: No match is longer than this.
REACH = 32
#: Places looked at for each gram, the latest first.
VISITS = 8
#: Put between two texts: nothing continues across it.
GAP = -1
#: A token's size in the ring.
BYTES = 4


@dataclasses.dataclass(frozen=True)
class Found:
    """The places where the last `matched` tokens stood before, the latest first."""

    matched: int = 0
    places: Sequence[int] = ()


class History:
    """Remembers the last *capacity* tokens (at least 64) in at most 40 bytes each."""

    def __init__(self, capacity: int) -> None:
        if capacity < 2 * REACH:
            raise ValueError(f"a history of {capacity} tokens is too short; it needs {2 * REACH}")
        self._capacity = capacity
        self._size = 0
        # The ring's first places stand again behind its end, so that no window wraps. Zeros that nobody has written
        # yet cost no memory. A bytearray compares in place, and a memoryview of it holds the numbers.
        self._bytes = bytearray(BYTES * (capacity + REACH))
        self._ring = memoryview(self._bytes).cast("i")
        buckets = 1 << (capacity - 1).bit_length()
        self._mask = buckets - 1
        # A place is the number of tokens up to its gram's end, so 0 is none.
        self._chains = [(gram, _places(buckets), _places(capacity)) for gram in GRAMS]

    def __len__(self) -> int:
        return min(self._size, self._capacity)

    def extend(self, tokens: Iterable[int]) -> None:
        """Remember *tokens* behind the others, GAP where a text ends."""
        ring, capacity, mask = self._ring, self._capacity, self._mask
        for token in tokens:
            place = self._size % capacity
            ring[place] = token
            if place < REACH:
                ring[capacity + place] = token
            self._size = end = self._size + 1
            for gram, latest, earlier in self._chains:
                if end >= gram:
                    start = (end - gram) % capacity
                    bucket = crc32(ring[start : start + gram]) & mask
                    earlier[end % capacity] = latest[bucket]
                    latest[bucket] = end

    def find(self, last: bytes, at_least: int = 0) -> Found:
        """Where *last*, from `last_tokens`, stood before, the longest match; none shorter than *at_least*.

        The end of this history itself, behind which nothing stands, is no such place.
        """
        size, capacity, startswith = self._size, self._capacity, self._bytes.startswith
        oldest = max(0, size - capacity)
        for gram, latest, earlier in self._chains:
            if at_least > max(gram, *GRAMS[gram]):
                break
            pattern = last[-BYTES * gram :]
            if len(pattern) < BYTES * gram:
                continue
            ends = []
            end = latest[crc32(pattern) & self._mask]
            for _ in range(VISITS):
                if end < oldest + gram:
                    break
                # Other grams of the same hash are in the chain too.
                if end < size and startswith(pattern, (end - gram) % capacity * BYTES):
                    ends.append(end)
                end = earlier[end % capacity]
            if ends:
                return self._longest(ends, last, gram)
        return Found()

    def ahead(self, place: int, length: int) -> list[int]:
        """Up to *length* (at most 32) tokens that followed at *place*, from `find`; none beyond a gap."""
        start = place % self._capacity
        ahead: list[int] = self._ring[start : start + min(length, self._size - place)].tolist()
        return ahead[: ahead.index(GAP)] if GAP in ahead else ahead

    def _longest(self, ends: list[int], last: bytes, matched: int) -> Found:
        """Those of *ends* before which the most tokens stand, *matched* or more."""
        capacity, startswith = self._capacity, self._bytes.startswith
        oldest = max(0, self._size - capacity)
        for longer in GRAMS[matched]:
            pattern = last[-BYTES * longer :]
            if len(pattern) < BYTES * longer:
                break
            first = oldest + longer
            still = [end for end in ends if end >= first and startswith(pattern, (end - longer) % capacity * BYTES)]
            if not still:
                break
            matched, ends = longer, still
        return Found(matched, ends)


def last_tokens(tokens: Sequence[int]) -> bytes:
    """The last of *tokens* as `History.find` looks for them."""
    return array("i", tokens[-REACH:]).tobytes()


def _places(count: int) -> memoryview:
    return memoryview(bytearray(BYTES * count)).cast("I")
