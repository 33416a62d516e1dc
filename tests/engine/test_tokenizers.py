"""Bytes in, bytes out: tokenizers against texts of all kinds, the mini family and real ones."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.engine import texts
from tests.engine.texts import EACH, TEXTS, few
from worker.engine.errors import PromptNotUsable
from worker.engine.token_bytes import complete_utf8
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Turn

each_tokenizer = pytest.mark.parametrize("name", EACH)
CONTROL = ["<|im_end|>", "<|im_start|>", "<s>", "</s>", "<unk>", "<|endoftext|>", "<tool_call>", "<|im_start|>system\n"]


@each_tokenizer
@few
@given(text=TEXTS)
def test_tokens_spell_the_text(name: str, text: str) -> None:
    """The bytes of a text's tokens are the text's own, a space before a segment aside."""
    tokenizer, read = texts.tokenizer(name), texts.as_read(name, text)
    prefix = " " if text and texts.begins_with_space(name) else ""

    assert (prefix + read).encode() == tokenizer.spell(tokenizer.encode(text))
    assert read.encode() == tokenizer.spell(tokenizer.encode_middle(text))


@each_tokenizer
@few
@given(text=TEXTS, start=st.integers(0, 40), size=st.integers(0, 80))
def test_bytes_cut_anywhere_keep_their_spelling(name: str, text: str, start: int, size: int) -> None:
    """A cut of the text, also inside characters, is spelled as it is but for an incomplete last character."""
    tokenizer = texts.tokenizer(name)
    data = texts.as_read(name, text).encode()[start:][:size]
    spelled = tokenizer.spell(tokenizer.encode_bytes(data))
    if texts.normalises(name):  # a cut before a combining character changes what is composed
        data = texts.as_read(name, data.decode(errors="ignore")).encode()
        spelled = texts.as_read(name, spelled.decode(errors="ignore")).encode()

    assert data[: complete_utf8(data)] == spelled


@each_tokenizer
@few
@given(data=st.binary(max_size=24))
@example(data=b"\x80")
@example(data=b"\xf0\x9f\x91")
@example(data=b"a\xffb")
def test_any_bytes_give_some_tokens(name: str, data: bytes) -> None:
    """Bytes that are no text at all are cut too, into tokens that exist."""
    tokenizer = texts.tokenizer(name)
    ids = [*tokenizer.encode_bytes(data), *tokenizer.guess_character(data[complete_utf8(data) :])]

    assert all(0 <= token_id < len(tokenizer.table) for token_id in ids)


@each_tokenizer
@few
@given(contents=st.lists(TEXTS, min_size=1, max_size=3))
def test_a_conversation_is_what_the_template_gives(name: str, contents: list[str]) -> None:
    """Turns of ordinary text give the ids of `apply_chat_template`."""
    turns = [Turn(role=("user", "assistant")[index % 2], content=text) for index, text in enumerate(contents)]
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    expected = texts.wrapped(name).apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    assert expected == texts.tokenizer(name).conversation(turns)


@each_tokenizer
@few
@given(parts=st.lists(st.one_of(st.sampled_from(CONTROL), TEXTS), min_size=1, max_size=5))
@example(parts=["<|im_", "<|im_end|>", "end|>"])
@example(parts=["<|im_end|><|im_end|>"])
@example(parts=["<|im_end"])
def test_control_tokens_in_a_users_text_stay_text(name: str, parts: list[str]) -> None:
    """Whatever a user writes adds no control token, and is read as it was written."""
    tokenizer, text = texts.tokenizer(name), "".join(parts)
    bare = tokenizer.conversation([Turn(role="user", content="")])
    ids = tokenizer.conversation([Turn(role="user", content=text)])

    assert controls(tokenizer, bare) == controls(tokenizer, ids)
    assert texts.as_read(name, text).encode() in tokenizer.spell(ids)
    assert controls(tokenizer, tokenizer.raw("")) == controls(tokenizer, tokenizer.raw(text))


@each_tokenizer
@pytest.mark.parametrize("text", ["\ud800", "koniec \udfff."])
def test_half_a_character_is_refused(name: str, text: str) -> None:
    """A lone surrogate, which JSON can hold and UTF-8 cannot, is this item's error."""
    tokenizer = texts.tokenizer(name)
    with pytest.raises(PromptNotUsable, match="surrogate"):
        tokenizer.raw(text)
    with pytest.raises(PromptNotUsable, match="surrogate"):
        tokenizer.conversation([Turn(role="user", content=text)])


def controls(tokenizer: Tokenizer, ids: list[int]) -> list[int]:
    """The control tokens among *ids*."""
    return [token_id for token_id in ids if not tokenizer.table[token_id]]
