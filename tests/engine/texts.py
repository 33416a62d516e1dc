"""Texts that tokenizers stumble over, and tokenizers to try them on: the mini family, and real ones where present."""

from __future__ import annotations

import functools
import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from worker.engine.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "tokenizers"
MINI = ROOT / "worker" / "mini"
FOLDERS = {path.parent.name: path.parent for root in (MINI, REAL) for path in sorted(root.glob("*/tokenizer.json"))}
#: The mini target and draft share a tokenizer.
NAMES = sorted(set(FOLDERS) - {"mini-draft"})
#: As parameters of a test; a real tokenizer takes seconds to load.
EACH = [pytest.param(name, marks=[pytest.mark.slow] if FOLDERS[name].parent == REAL else []) for name in NAMES]

#: The same examples in every run.
few = settings(max_examples=40, deadline=None, derandomize=True)

CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)

FRAGMENTS = [
    "Zażółć gęślą jaźń",
    unicodedata.normalize("NFD", "źdźbło ďábel é"),
    " „Nie” — powiedział…",
    "👩‍👩‍👧‍👦",
    "🇵🇱",
    "e\u0301\u0328",
    "漢字かな交じり文",
    "한국어",
    "مرحبا",
    " ",
    "   ",
    " " * 37,
    "\n",
    "\r\n\t",
    "\u00a0",
    "\u200b",
    "\ufeff",
    "def f(x):\n    return x ** 2  # ćwierć\n",
    '{"klucz": [1, 2.5e-3, null]}',
    "2026-11-30 12:45",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "nie-biało_czerwony",
    "\x00\x1b",
    "I'll",
]
#: Ordinary text of all kinds, without control tokens; private characters and surrogates left out.
TEXTS = st.lists(
    st.one_of(
        st.sampled_from(FRAGMENTS),
        st.text(st.characters(exclude_categories=["Cs", "Co"], exclude_characters="▁"), max_size=12),
    ),
    max_size=6,
).map("".join)


@functools.cache
def wrapped(name: str) -> PreTrainedTokenizerFast:
    """The tokenizer of `transformers`, with a chat template."""
    folder = FOLDERS[name]
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    special = {key: config[key] for key in ("bos_token", "eos_token", "unk_token", "pad_token") if key in config}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **special)
    tokenizer.chat_template = config.get("chat_template", CHATML)
    return tokenizer


@functools.cache
def tokenizer(name: str) -> Tokenizer:
    """The engine's tokenizer *name*."""
    return Tokenizer(wrapped(name), [wrapped(name).eos_token_id])


@functools.cache
def normalises(name: str) -> bool:
    """Whether the tokenizer changes text to NFC."""
    return "NFC" in str(json.loads(wrapped(name).backend_tokenizer.to_str())["normalizer"])


def as_read(name: str, text: str) -> str:
    """*text* as the tokenizer reads it."""
    return unicodedata.normalize("NFC", text) if normalises(name) else text


def begins_with_space(name: str) -> bool:
    """Whether the tokenizer puts a space before a segment."""
    return tokenizer(name).strips_first_space
