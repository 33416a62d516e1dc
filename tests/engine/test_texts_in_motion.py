"""Text that grows, crosses vocabularies and is streamed: retokenised, translated and emitted, over all tokenizers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine import texts
from tests.engine.texts import EACH, NAMES, TEXTS, few
from worker.engine import translate
from worker.engine.emit import Emitter
from worker.engine.retokenize import MAX_TAIL_CHARS, WORD_BOUNDARY, Retokenized
from worker.engine.token_bytes import complete_utf8

each_tokenizer = pytest.mark.parametrize("name", EACH)
each_pair = pytest.mark.parametrize(("target", "draft"), [(NAMES[index - 1], name) for index, name in enumerate(NAMES)])
CUTS = st.lists(st.integers(1, 30), max_size=20)


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """*data* in pieces of *sizes*, the rest last."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


@each_tokenizer
@few
@given(text=TEXTS, sizes=CUTS)
def test_growing_text_is_cut_as_a_whole(name: str, text: str, sizes: list[int]) -> None:
    """Fed in pieces, also of characters, a text has the tokens it has from scratch, and what is final stays."""
    tokenizer = texts.tokenizer(name)
    grown, fed = Retokenized(tokenizer, [0, 1]), b""
    for piece in cut(text.encode(), sizes):
        before = list(grown.ids)
        unchanged = grown.extend(piece)
        fed += piece
        whole = fed[: complete_utf8(fed)].decode()

        assert before[:unchanged] == grown.ids[:unchanged]
        assert fed[complete_utf8(fed) :] == grown.pending
        assert texts.as_read(name, whole).encode() == tokenizer.spell(grown.ids[2:])
        if max(len(run) for run in WORD_BOUNDARY.split(whole)) <= MAX_TAIL_CHARS:
            assert [0, 1, *tokenizer.encode_middle(whole)] == grown.ids


@each_tokenizer
@settings(max_examples=8, deadline=None, derandomize=True)
@given(unit=st.sampled_from(["漢字", "=", "ąę", "a.", "\n"]), count=st.integers(200, 500), size=st.integers(20, 90))
def test_text_without_words_stays_bounded(name: str, unit: str, count: int, size: int) -> None:
    """A text without word boundaries is spelled exactly, and only its end is cut again."""
    tokenizer, data = texts.tokenizer(name), (unit * count).encode()
    grown = Retokenized(tokenizer, [0])
    longest = 0
    for piece in cut(data, [size] * (len(data) // size)):
        unchanged = grown.extend(piece)
        longest = max(longest, len(grown.ids) - unchanged)

    assert data == tokenizer.spell(grown.ids[1:]) + grown.pending
    assert longest <= 4 * MAX_TAIL_CHARS + 4 * size


@each_pair
@few
@given(text=TEXTS, at=st.integers(0, 60), taken=st.integers(1, 6))
def test_translations_go_behind_what_is_committed(target: str, draft: str, text: str, at: int, taken: int) -> None:
    """What the draft says next is spelled by the proposal as far as it goes, whatever was committed before."""
    ours, theirs = texts.tokenizer(target), texts.tokenizer(draft)
    text = texts.as_read(draft, texts.as_read(target, text))
    said = theirs.encode_middle(text)
    at = min(at, len(said))
    committed = ours.encode_bytes(theirs.spell(said[:at]))
    before = list(committed)
    data = theirs.spell(said[: at + taken])[len(ours.spell(committed)) :]
    pieces = [theirs.table[token_id] for token_id in said[at : at + taken]]
    direct, context = translate.direct(ours, pieces), translate.in_context(ours, committed, data)

    assert before == committed
    assert b"".join(pieces).startswith(ours.spell(direct))
    if texts.normalises(target):  # a proposal that composes what stands apart is only wrong
        return
    spelled = ours.spell(context)
    assert spelled.startswith(data[: complete_utf8(data)])
    assert spelled.startswith(data) or data.startswith(spelled)


@each_tokenizer
@few
@given(text=TEXTS)
@example(text="👩‍👩‍👧‍👦")
@example(text=" dwie  spacje  ")
def test_streamed_text_is_the_decoded_text(name: str, text: str) -> None:
    """At every step the stream is the tokens' decoding but for an incomplete last character."""
    tokenizer = texts.tokenizer(name)
    ids = tokenizer.encode(text)
    emitter, streamed = Emitter(tokenizer, len(ids) + 1), ""
    for index, token_id in enumerate(ids):
        assert emitter.push(token_id)
        fresh = emitter.release()
        streamed += fresh
        whole = tokenizer.spell(ids[: index + 1])
        decoded = tokenizer.decode(ids[: index + 1])

        assert streamed == emitter.text
        assert "\ufffd" not in fresh or "\ufffd" in text
        if complete_utf8(whole) == len(whole):
            assert decoded == streamed
        else:
            complete = whole[: complete_utf8(whole)].decode()
            assert streamed == (complete.removeprefix(" ") if texts.begins_with_space(name) else complete)


@each_tokenizer
@few
@given(text=TEXTS, at=st.integers(0, 30), size=st.integers(1, 5), other=st.sampled_from(["ć", "\n\n", "nie", "  "]))
def test_stop_strings_cut_before_they_show(name: str, text: str, at: int, size: int, other: str) -> None:
    """Nothing of the first stop string to come is ever streamed, and all text before it is."""
    tokenizer = texts.tokenizer(name)
    ids = tokenizer.encode(text)
    whole = tokenizer.decode(ids)
    stops = [stop for stop in (whole[at : at + size], other) if stop]
    emitter, streamed = Emitter(tokenizer, len(ids) + 1, stops), ""
    for token_id in ids:
        going = emitter.push(token_id)
        streamed += emitter.release()
        if not going:
            break
    found = [whole.find(stop) for stop in stops if stop in whole]
    expected = whole[: earliest_end(whole, stops)] if found else whole

    assert expected.startswith(streamed)
    assert ("stop" if found else None) == emitter.finish_reason
    if found:
        assert expected == streamed == emitter.text


def earliest_end(text: str, stops: Sequence[str]) -> int:
    """Where the text is cut when it is read character by character: at the stop string complete first."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return len(text)
