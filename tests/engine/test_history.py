"""Places are found as a search through everything would find them, within bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine import history
from worker.engine.history import GAP, GRAMS, REACH, Found, History, last_tokens

LENGTHS = sorted({length for gram, longer in GRAMS.items() for length in (gram, *longer)}, reverse=True)


def search(text: list[int], tokens: list[int], oldest: int = 0) -> Found:
    """The slow obvious way: for each length of match, the longest first, look at every place from the last back."""
    for matched in LENGTHS:
        if matched > len(tokens):
            continue
        ends = [
            end
            for end in range(len(text) - 1, oldest + matched - 1, -1)
            if text[end - matched : end] == tokens[-matched:]
        ]
        if ends:
            return Found(matched, ends)
    return Found()


def until_gap(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(GAP)] if GAP in tokens else tokens


SMALL = st.lists(st.integers(0, 2), max_size=60)


@given(st.lists(st.one_of(st.integers(0, 2), st.just(GAP)), max_size=200), SMALL, st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_places_are_those_of_a_search(text: list[int], tokens: list[int], length: int) -> None:
    """On a small alphabet, where everything repeats; behind a text that is not its own and behind its own end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "VISITS", 10_000)
        remembered = History(256)
        remembered.extend(text)

        own = until_gap(text[::-1])[::-1]
        for last in (tokens, own):
            found = remembered.find(last_tokens(last))
            assert search(text, last) == found
            for place in found.places:
                assert until_gap(text[place : place + length]) == remembered.ahead(place, length)


@given(st.lists(st.integers(0, 3), min_size=65, max_size=400), SMALL)
@settings(max_examples=40, deadline=None)
def test_the_oldest_make_room(text: list[int], tokens: list[int]) -> None:
    """A full ring answers as a search through its last tokens does, wherever it has wrapped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "VISITS", 10_000)
        remembered = History(64)
        remembered.extend(text)
        # A place is kept while the gram that leads to it is.
        found = search(text, tokens, oldest=max(0, len(text) - 64))

        assert found == remembered.find(last_tokens(tokens))
        assert [text[place : place + 4] for place in found.places] == [remembered.ahead(at, 4) for at in found.places]
        assert len(remembered) == min(64, len(text))


def test_matches_shorter_than_wanted_are_left_out() -> None:
    """Two tokens match; whoever needs four gets nothing."""
    remembered = History(64)
    remembered.extend([1, 2, 3, 4])

    assert Found(2, [2]) == remembered.find(last_tokens([1, 2]))
    assert [3, 4] == remembered.ahead(2, 9)
    assert Found() == remembered.find(last_tokens([1, 2]), at_least=4)


def test_only_the_latest_places_are_visited() -> None:
    """However often a gram occurs, the work is bounded."""
    remembered = History(1024)
    for token in range(100):
        remembered.extend([1, 2, 10 + token])

    found = remembered.find(last_tokens([1, 2]))

    assert [3 * token + 2 for token in range(99, 99 - history.VISITS, -1)] == found.places


def test_memory_is_bounded() -> None:
    """What it allocates is decided at its birth: at most 40 bytes a token."""
    remembered = History(4096)
    arrays = [remembered._ring, *(part for _, *parts in remembered._chains for part in parts)]
    before = sum(part.nbytes for part in arrays)
    for start in range(0, 20_000, 100):
        remembered.extend(range(start, start + 100))

    assert before == sum(part.nbytes for part in arrays) <= 40 * 4096
    assert 4096 == len(remembered)


def test_a_history_too_short_to_hold_its_windows_is_refused() -> None:
    """Below twice the reach the ring's windows would overlap."""
    with pytest.raises(ValueError, match=str(2 * REACH)):
        History(63)
