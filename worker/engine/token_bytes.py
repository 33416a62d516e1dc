"""Token id -> bytes, one table per tokenizer. Across tokenizers everything is bytes.

A tokenizer spells its pieces in one of two ways: in the byte-level alphabet (GPT-2, Qwen, Llama 3), where each
character stands for one byte, or as text with U+2581 for a space and `<0xXX>` for a byte that has no piece
(SentencePiece: Mistral, Bielik). A control token has no bytes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer as Backend

SPACE_MARKER = "▁"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@lru_cache(maxsize=1)
def byte_alphabet() -> dict[str, int]:
    """The byte-level alphabet: printable Latin-1 stands for itself, every other byte for a character from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(value): value for value in printable}
    others = (value for value in range(256) if value not in set(printable))
    return alphabet | {chr(0x100 + index): value for index, value in enumerate(others)}


def byte_table(backend: Backend, description: dict[str, Any]) -> list[bytes]:
    """The bytes of every id of *backend*, indexed by id; control tokens and unused ids have none.

    *description* is its `tokenizer.json`.
    """
    spell = _spell_byte_level if is_byte_level(description) else _spell_sentencepiece
    added = {token["id"]: token for token in description["added_tokens"]}
    vocabulary = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values()) + 1)
    unknown = description["model"].get("unk_token")
    for piece, token_id in vocabulary.items():
        if token_id in added:
            table[token_id] = b"" if added[token_id]["special"] else piece.encode()
        elif piece != unknown:
            table[token_id] = spell(piece)
    return table


def is_byte_level(description: dict[str, Any]) -> bool:
    """Whether the tokenizer's decoder, as in `tokenizer.json`, reads the byte-level alphabet."""
    decoder = description.get("decoder") or {}
    return any(part.get("type") == "ByteLevel" for part in [decoder, *decoder.get("decoders", [])])


def _spell_byte_level(piece: str) -> bytes:
    alphabet = byte_alphabet()
    return bytes(alphabet[char] for char in piece) if all(char in alphabet for char in piece) else piece.encode()


def _spell_sentencepiece(piece: str) -> bytes:
    single = BYTE_PIECE.fullmatch(piece)
    return bytes([int(single[1], 16)]) if single else piece.replace(SPACE_MARKER, " ").encode()


def ids_by_bytes(table: list[bytes]) -> dict[bytes, int]:
    """The id of each byte string that is exactly one token. Where several are, the first non-fallback piece wins.

    SentencePiece lists its 256 byte pieces first, so a later ordinary piece takes over from them.
    """
    exact: dict[bytes, int] = {}
    for token_id, spelled in enumerate(table):
        if spelled and (spelled not in exact or len(spelled) == 1):
            exact[spelled] = token_id
    return exact


def likeliest_starts(exact: dict[bytes, int]) -> dict[bytes, int]:
    """For each incomplete UTF-8 character, the token of one character that it most likely becomes.

    Vocabularies list frequent characters first, so that is the lowest id.
    """
    starts: dict[bytes, int] = {}
    for spelled, token_id in exact.items():
        if len(spelled) > 1 and complete_utf8(spelled[:-1]) == 0 and complete_utf8(spelled) == len(spelled):
            for size in range(1, len(spelled)):
                known = starts.get(spelled[:size], token_id)
                starts[spelled[:size]] = min(known, token_id)
    return starts


def complete_utf8(data: bytes) -> int:
    """Length of *data* without a trailing, still incomplete UTF-8 character."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if back >= needed else len(data) - back
    return len(data)
