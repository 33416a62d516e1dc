"""The n-gram file says what counting everything in memory says; only a whole file of this version is read."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from worker.engine import ngram_counts
from worker.engine.drafters.ngram import NgramDrafter
from worker.engine.errors import ModelNotLoadable
from worker.engine.ngram_file import HEADER_BYTES, Guess, NgramFile, build, table_hash

TABLE = [b"", b"a", b"b", b"c", b"d", b"ab", b" "]
TEXTS = [[1, 2, 3, 1, 2, 3, 1, 2, 4], [1, 2, 4], [2, 3]]


def counted(texts: list[list[int]], order: int) -> dict[tuple[int, ...], Counter[int]]:
    """By context of *order* - 1 tokens, how often each token came behind it."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    for text in texts:
        for at in range(len(text) - order + 1):
            *context, token = text[at : at + order]
            found.setdefault(tuple(context), Counter())[token] += 1
    return found


def expected_guess(texts: list[list[int]], tokens: list[int], order: int, min_count: int) -> Guess | None:
    """The slow obvious back-off."""
    for level in range(order, 1, -1):
        behind = counted(texts, level).get(tuple(tokens[len(tokens) - level + 1 :]), Counter())
        if len(tokens) >= level - 1 and behind.total() >= min_count:
            best = max(behind.values())
            token = min(token for token, count in behind.items() if count == best)
            return Guess(token, best, behind.total(), level)
    return None


TEXT = st.lists(st.integers(0, 6), max_size=40)


@given(st.lists(TEXT, max_size=8), st.integers(2, 4), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_says_what_counting_says(
    tmp_path: Path, texts: list[list[int]], order: int, min_count: int, chunk: int, block: int
) -> None:
    """For every context of up to three tokens, however small the chunks sorted and the blocks merged are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_counts, "CHUNK_GRAMS", chunk)
        patch.setattr(ngram_counts, "BLOCK_GRAMS", block)
        build(tmp_path / "f.ngram", texts, TABLE, order, min_count)
    model = NgramFile(tmp_path / "f.ngram")

    seen = {tuple(text[at : at + 3]) for text in texts for at in range(len(text))}
    for tokens in [*sorted(seen)[:40], *itertools.product(range(2), repeat=3)]:
        assert expected_guess(texts, list(tokens), order, min_count) == model.guess(tokens), tokens
    assert [path.name for path in tmp_path.iterdir()] == ["f.ngram"]


def test_score_by_hand(tmp_path: Path) -> None:
    """Behind 1 2 came 3 twice and 4 twice (the smaller id wins); behind 2 3 came 1 twice; one miss is added to each.

    3 has the chance 2/5, and 1 behind it 2/3: 0.4 + 0.4 * 2/3 are expected to stand.
    """
    build(tmp_path / "f.ngram", TEXTS, TABLE, 3, 1)
    drafter = NgramDrafter(NgramFile(tmp_path / "f.ngram"))
    draft = drafter.propose([5, 1, 2], 2, 16)

    assert ((3, 1), 2) == (draft.tokens, draft.draft_tokens)
    assert pytest.approx(2 / 5 + 2 / 5 * 2 / 3) == draft.expected
    assert (3,) == drafter.propose([5, 1, 2], 2, 1).tokens


def test_backs_off_to_one_token_and_then_stops(tmp_path: Path) -> None:
    """6 2 was never seen and 2 was; behind 6 nothing was."""
    build(tmp_path / "f.ngram", TEXTS, TABLE, 3, 1)
    drafter = NgramDrafter(NgramFile(tmp_path / "f.ngram"))

    assert 3 == drafter.propose([6, 2], 1, 1).tokens[0]
    assert () == drafter.propose([2, 6], 4, 4).tokens


def test_the_bigram_is_order_two(tmp_path: Path) -> None:
    """One level, one token of context."""
    header = build(tmp_path / "f.ngram", TEXTS, TABLE, 2, 1)

    assert [2] == [level["order"] for level in header["levels"]]
    assert Guess(3, 3, 5, 2) == NgramFile(tmp_path / "f.ngram").guess([1, 2])


def test_orders_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """An order is named with what is possible, and no file is left."""
    for order in (0, 1, 6):
        with pytest.raises(ValueError, match=f"2 to 5 .* not {order}"):
            build(tmp_path / "f.ngram", TEXTS, TABLE, order)
    with pytest.raises(ValueError, match="2 to 3 for a vocabulary of 151665 tokens, not 4"):
        build(tmp_path / "f.ngram", [], [b""] * 151_665, 4)
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Missing, foreign, cut off, or of a later version: what is wrong and what to type."""
    path = tmp_path / "f.ngram"
    build(path, TEXTS, TABLE, 3, 1)
    whole = path.read_bytes()
    later = whole.replace(b'"version": 1', b'"version": 2')
    for data, said in [(whole[:-1], "bytes of"), (b"other", "begin"), (later, "version 2"), (whole[:900], "")]:
        path.write_bytes(data)
        with pytest.raises(ModelNotLoadable, match=f"(?s){said}.*nocka ngram build"):
            NgramFile(path)
    path.unlink()
    with pytest.raises(ModelNotLoadable, match=r"f\.ngram"):
        NgramFile(path)


def test_a_build_that_is_stopped_leaves_the_old_file(tmp_path: Path) -> None:
    """The new file appears whole or not at all, and nothing lies about."""
    path = tmp_path / "f.ngram"
    path.write_bytes(b"old")

    def stop(done: float) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build(path, TEXTS, TABLE, merging=stop)
    assert (b"old", [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


def test_the_header_is_two_lines_that_anyone_can_read(tmp_path: Path) -> None:
    """`head -2 FILE` shows it; it holds no paths, only the tokenizer's hash and counts."""
    build(tmp_path / "f.ngram", TEXTS, TABLE, 3, 2)
    magic, line = (tmp_path / "f.ngram").read_bytes()[:HEADER_BYTES].splitlines()
    header = json.loads(line)

    assert b"nocka-ngram" == magic
    assert table_hash(TABLE) == header["tokenizer_sha256"] != table_hash(TABLE[1:])
    assert (14, 7, 3) == (header["tokens"], header["vocab_size"], header["token_bits"])
