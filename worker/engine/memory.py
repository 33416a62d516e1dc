"""How much memory models and caches may take on this machine, and what to give up where what is asked takes more."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mlx.core as mx

from worker.engine.errors import ModelTooLarge, TextTooLarge

#: Of a machine without a GPU's own limit; as the catalogue does.
USABLE_SHARE = 0.75
#: Rows of a batch join by being copied into one array, so for a moment everything is held twice.
COPIES = 2
#: Bytes of a number, by its name in a safetensors file.
FLOATING = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def allowed_bytes() -> int:
    """What models and caches may take here: what Metal recommends, else three quarters of the memory."""
    if mx.metal.is_available():
        return int(mx.device_info()["max_recommended_working_set_size"])
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(min(physical, _container_limit() or physical) * USABLE_SHARE)


def _container_limit() -> int | None:
    """What a container may take; None outside one."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """Strictly read-only. What a model takes in memory, by its files."""

    name: str
    weights_bytes: int
    #: Bytes of the cache for one token: of the layers that see the whole text, and of those that see a window of it.
    token_bytes: int
    windowed_token_bytes: int = 0
    window_tokens: int = 0
    #: How many tokens it can read.
    context_tokens: int

    def cache_bytes(self, tokens: int) -> int:
        """What the cache of a text of *tokens* takes."""
        tokens = min(tokens, self.context_tokens)
        return tokens * self.token_bytes + min(tokens, self.window_tokens) * self.windowed_token_bytes


def weights_bytes(tensors: Iterable[tuple[str, int]], width: int | None) -> int:
    """What *tensors* (type and bytes in the file) take with *width* bytes a floating number; None: as they are."""
    return sum(
        stored if width is None or dtype not in FLOATING else stored // FLOATING[dtype] * width
        for dtype, stored in tensors
    )


def layers_bytes(config: dict[str, Any], width: int) -> tuple[int, int, int]:
    """By a model's `config.json`: bytes of a token in the layers that see all and in those with a window, and that one.

    Where it has no attention, as a state-space model, both are 0. *width*: bytes of a number.
    """
    config = {**config, **(config.get("text_config") or {})}
    heads, layers = config.get("num_attention_heads"), config.get("num_hidden_layers")
    if not heads or not layers:
        return 0, 0, 0
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    layer_bytes = 2 * (config.get("num_key_value_heads") or heads) * head_dim * width
    kinds, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    if kinds:
        whole, windowed = kinds.count("full_attention"), kinds.count("sliding_attention")
    else:
        whole = layers // pattern if pattern else layers
        windowed = layers - whole
    return whole * layer_bytes, windowed * layer_bytes, config.get("sliding_window") or 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Strictly read-only. What a request wants to run with: texts of so many tokens, in each model's own."""

    target: Size
    tokens: int
    draft: Size | None = None
    draft_tokens: int = 0
    rows: int = 1

    def needed_bytes(self) -> int:
        """What all of it takes."""
        each = self.target.cache_bytes(self.tokens)
        caches = each if self.rows == 1 else COPIES * self.rows * each
        if self.draft is None:
            return self.target.weights_bytes + caches
        draft_bytes = self.draft.weights_bytes + self.draft.cache_bytes(self.draft_tokens)
        return self.target.weights_bytes + caches + draft_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Strictly read-only. What of it can be had, and what it takes."""

    asked: Asked
    #: What was given up, and why; None where nothing was.
    why: str | None = None


def fit(asked: Asked, allowed_bytes: int) -> Fit:
    """What of *asked* fits into *allowed_bytes*: fewer rows are given up first, then the draft.

    Raises ModelTooLarge where the target's weights alone do not fit, TextTooLarge where its cache does not either.
    """
    alone = dataclasses.replace(asked, draft=None, draft_tokens=0)
    for choice in [asked] if asked.draft is None else [asked, alone]:
        rows = _most_rows(choice, allowed_bytes)
        if rows:
            made = dataclasses.replace(choice, rows=rows)
            why = _given_up(asked, made, allowed_bytes)
            return Fit(asked=made, why=why)
    target, weights = asked.target, gib(asked.target.weights_bytes)
    room = f"models may take {gib(allowed_bytes)} on this machine"
    if target.weights_bytes > allowed_bytes:
        raise ModelTooLarge(
            f"the weights of {target.name} take {weights} and {room}; take a smaller or a quantised model"
        )
    raise TextTooLarge(
        f"the text and its answer may have {asked.tokens} tokens, for which {target.name} takes "
        f"{weights} and {gib(target.cache_bytes(asked.tokens))} of cache; {room}; "
        "shorten the text, lower max_tokens, or take a smaller model"
    )


def gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"


def _most_rows(asked: Asked, allowed_bytes: int) -> int:
    """How many rows of *asked* fit, none perhaps."""
    rows = asked.rows
    while rows and dataclasses.replace(asked, rows=rows).needed_bytes() > allowed_bytes:
        rows -= 1
    return rows


def _given_up(asked: Asked, made: Asked, allowed_bytes: int) -> str | None:
    if made == asked:
        return None
    what = [f"{made.rows} of {asked.rows} rows"] if made.rows < asked.rows else []
    what += ["no draft"] if made.draft != asked.draft else []
    return (
        f"{' and '.join(what)}: all would take {gib(asked.needed_bytes())} with {asked.tokens} tokens of text, "
        f"and models may take {gib(allowed_bytes)} on this machine"
    )
