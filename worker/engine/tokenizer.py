"""The one adapter to tokenizers: text and conversations to ids, ids to bytes.

Text of a user is text: a `<|im_end|>` inside it never becomes a control token, since template and content are encoded
separately. Knows no model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerBase

from worker.engine.errors import PromptNotUsable
from worker.engine.token_bytes import byte_table, complete_utf8, ids_by_bytes, likeliest_starts
from worker.engine.values import Turn

FIRST_STAND_IN = 0xF0000  # a private-use plane: no text of a user should hold it, and it is checked


class Tokenizer:
    """A tokenizer of `transformers` with its byte table and with control tokens kept out of ordinary text."""

    def __init__(self, wrapped: PreTrainedTokenizerBase, eos_ids: Sequence[int]) -> None:
        self._wrapped = wrapped
        backend: Backend = wrapped.backend_tokenizer
        description = json.loads(backend.to_str())
        self.table = byte_table(backend, description)
        self.exact = ids_by_bytes(self.table)
        self._starts = likeliest_starts(self.exact)
        self.eos_ids = frozenset(eos_ids)
        #: The token that ends a turn, to propose where a draft ends its own.
        self.end_of_turn = int(
            wrapped.eos_token_id if wrapped.eos_token_id is not None else min(self.eos_ids, default=0)
        )
        self.strips_first_space = _strips_first_space(description)
        self._control = {token["content"]: token for token in description["added_tokens"]}
        self._control_split = _control_pattern(description["added_tokens"])
        self._plain = Backend.from_str(json.dumps(description | {"added_tokens": []}))
        middle = _without_prefix(description)
        same = middle == description
        self._middle = self._plain if same else Backend.from_str(json.dumps(middle | {"added_tokens": []}))
        self._start = list(backend.encode("", add_special_tokens=True).ids)

    @property
    def has_chat_template(self) -> bool:
        return bool(self._wrapped.chat_template)

    def encode(self, text: str) -> list[int]:
        """Ids of *text* that begins a segment, as it does after a control token; no control tokens, no BOS."""
        return _encode(self._plain, text)

    def encode_middle(self, text: str) -> list[int]:
        """Ids of *text* that goes on from earlier text: no prefix marker is put before it."""
        return _encode(self._middle, text)

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids of *data* that goes on from earlier text and may begin inside a UTF-8 character.

        A trailing incomplete character is left out. Returns what fits before the first byte that has no token.
        """
        ids: list[int] = []
        start = 0
        while start < len(data) and 0x80 <= data[start] < 0xC0:
            if data[start : start + 1] not in self.exact:
                return ids
            ids.append(self.exact[data[start : start + 1]])
            start += 1
        whole = data[start : start + complete_utf8(data[start:])]
        return ids + self.encode_middle(whole.decode(errors="replace"))

    def guess_character(self, start: bytes) -> list[int]:
        """Ids for an incomplete UTF-8 character: the token it most likely becomes, else its bytes one by one."""
        if start in self._starts:
            return [self._starts[start]]
        single = [start[index : index + 1] for index in range(len(start))]
        return [self.exact[byte] for byte in single] if all(byte in self.exact for byte in single) else []

    def spell(self, ids: Sequence[int]) -> bytes:
        """The bytes of *ids*, control tokens left out, a first space kept."""
        try:
            return b"".join([self.table[token_id] for token_id in ids])
        except IndexError:  # a model may have more logits than its tokenizer has tokens
            return b"".join([self.piece(token_id) for token_id in ids])

    def piece(self, token_id: int) -> bytes:
        """The bytes of one id; none of a control token."""
        return self.table[token_id] if token_id < len(self.table) else b""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of *ids* as the tokenizer's own decoder gives it, control tokens left out."""
        return str(self._wrapped.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def raw(self, text: str) -> list[int]:
        """Ids of a raw prompt: with BOS where the tokenizer adds one by itself."""
        return [*self._start, *self.encode(text)]

    def conversation(self, turns: Sequence[Turn]) -> list[int]:
        """Ids of *turns* in the chat template, opened for the assistant's answer.

        Ordinary text gives the ids of `apply_chat_template`. Raises PromptNotUsable where the template refuses.
        """
        if not self.has_chat_template:
            raise PromptNotUsable("this model has no chat template; submit the text raw (--raw)")
        stand_ins = self._stand_ins(turns)
        messages = [{"role": turn.role, "content": _replace(turn.content, stand_ins)} for turn in turns]
        try:
            rendered = self._wrapped.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise PromptNotUsable(f"the model's chat template refuses this conversation: {error}") from error
        back = {stand_in: content for content, stand_in in stand_ins.items()}
        ids: list[int] = []
        for index, part in enumerate(self._control_split.split(str(rendered))):
            if index % 2:
                ids.append(self._control[part.strip() if part not in self._control else part]["id"])
            elif part:
                ids.extend(self.encode(_replace(part, back)))
        return ids

    def check_template(self) -> None:
        """Render a trivial conversation. Raises PromptNotUsable where the template itself is broken."""
        if self.has_chat_template:
            self.conversation([Turn(role="user", content="a")])

    def _stand_ins(self, turns: Sequence[Turn]) -> dict[str, str]:
        """A private character for each control token that occurs inside the turns' own text."""
        found = {content for content in self._control for turn in turns if content in turn.content}
        text = "".join(turn.content for turn in turns)
        free = (chr(code) for code in range(FIRST_STAND_IN, FIRST_STAND_IN + 0xFFFE) if chr(code) not in text)
        return {content: next(free) for content in sorted(found, key=len, reverse=True)}


def _encode(backend: Backend, text: str) -> list[int]:
    try:
        return list(backend.encode(text, add_special_tokens=False).ids)
    except TypeError as error:
        raise PromptNotUsable("the text holds half a character (a lone surrogate); repair its encoding") from error


def _replace(text: str, replacements: dict[str, str]) -> str:
    for old, new in replacements.items():
        text = text.replace(old, new)
    return text


def _control_pattern(added_tokens: Sequence[dict[str, Any]]) -> re.Pattern[str]:
    """Splits text at added tokens, longest first, taking with them the white space that they claim."""
    parts = [
        (r"\s*" if token["lstrip"] else "") + re.escape(token["content"]) + (r"\s*" if token["rstrip"] else "")
        for token in sorted(added_tokens, key=lambda token: -len(token["content"]))
    ]
    return re.compile(f"({'|'.join(parts)})") if parts else re.compile(r"((?!))")


def _without_prefix(description: dict[str, Any]) -> dict[str, Any]:
    """The tokenizer's description with nothing that puts a marker or a space before the text."""
    normalizer = description.get("normalizer")
    if normalizer and normalizer["type"] == "Prepend":
        normalizer = None
    elif normalizer and normalizer["type"] == "Sequence":
        kept = [part for part in normalizer["normalizers"] if part["type"] != "Prepend"]
        normalizer = normalizer | {"normalizers": kept}
    splitter = description.get("pre_tokenizer")
    if splitter:
        parts = splitter.get("pretokenizers")
        splitter = (
            splitter | {"pretokenizers": [_unprefixed(part) for part in parts]} if parts else _unprefixed(splitter)
        )
    return description | {"normalizer": normalizer, "pre_tokenizer": splitter}


def _unprefixed(splitter: dict[str, Any]) -> dict[str, Any]:
    if splitter["type"] == "Metaspace":
        return splitter | {"prepend_scheme": "never"}
    return splitter | {"add_prefix_space": False} if "add_prefix_space" in splitter else splitter


def _strips_first_space(description: dict[str, Any]) -> bool:
    """Whether decoding takes one space off the front, as SentencePiece does for its prefix marker."""
    decoder = description.get("decoder") or {}
    parts = [decoder, *decoder.get("decoders", [])]
    stripped = any(part.get("type") == "Strip" and part.get("start", 0) > 0 for part in parts)
    metaspace = any(part.get("type") == "Metaspace" and part.get("prepend_scheme") != "never" for part in parts)
    return stripped or metaspace
