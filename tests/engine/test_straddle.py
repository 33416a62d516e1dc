"""What a text may end inside of: the likeliest way on, by the model's own probabilities."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tests.engine.texts import tokenizer
from worker.engine.straddle import Opening, Straddle


def likeliest(table: list[bytes], logits: np.ndarray, word: list[int], pending: bytes) -> tuple[int, int]:
    """By definition: of all (kept, token) whose bytes cover the rest of the word, the one of the highest chance."""
    chances = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    found = []
    for kept in range(len(word) + 1):
        begun = sum(chances[index, word[index]] for index in range(kept))
        rest = b"".join(table[token] for token in word[kept:]) + pending
        for token, piece in enumerate(table):
            goes_on = piece.startswith(rest) and (len(piece) > len(rest) or kept == len(word))
            if goes_on or not rest:
                found.append((begun + chances[kept, token], kept, token))
    _, kept, token = max(found)
    return kept, token


@pytest.mark.parametrize("name", ["mini-draft-bytes", "mini-draft-polish"])
@pytest.mark.parametrize("text", [" Ponie", " pracowni", " z", " Wszystk"])
def test_the_likeliest_way_on_is_taken(name: str, text: str) -> None:
    """Against every token tried in turn, for twenty laws and with half a character at the end."""
    spoken = tokenizer(name)
    straddle = Straddle(spoken)
    ids = spoken.encode_middle(text)
    word = straddle.last_word(ids, 0)
    random = np.random.default_rng(7)
    taken = set()
    for trial in range(20):
        logits = random.normal(0.0, 2.0, (len(word) + 1, len(spoken.table)))
        # Now and then the pieces of the word are what the model would say.
        for index, token in enumerate(word):
            logits[index, token] += (0.0, 6.0, 12.0)[trial % 3]
        pending = b"\xc4" if trial % 2 else b""
        opening = straddle.likeliest(mx.array(logits, dtype=mx.float32), word, pending)

        assert isinstance(opening, Opening)
        assert (opening.kept, opening.token) == likeliest(spoken.table, logits, word, pending)
        assert opening.repeated == len(spoken.spell(word[opening.kept :]) + pending)
        taken.add(opening.kept)
    assert len(word) == 1 or len(taken) > 1, "they all went on in the same place"
