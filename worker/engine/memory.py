"""Whether models and caches fit into this machine, and what to give up where they do not. Pure but for `allowed_bytes`.

What does not fit runs with a smaller batch first, then without its draft, and is refused at last: an answer late is
better than none, and a Mac that swaps, or whose GPU runs out of memory, gives none.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from worker.engine.batch import COPIES
from worker.engine.errors import TooLarge

#: What else the process needs: activations of a prompt's chunk, the interpreter, the tokenizer.
OVERHEAD_BYTES = 1 << 29
#: Of a machine without a GPU's own limit; as the catalogue does.
USABLE_SHARE = 0.75
FLOAT32_BYTES = 4
STORED_FLOAT_BYTES = 2
GIB = 1 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """Strictly read-only. Of one model: its weights once loaded, and a token in its cache."""

    weights_bytes: int
    token_bytes: int

    def held(self, context_tokens: int, rows: int = 1) -> int:
        """Bytes of the weights and of *rows* caches of *context_tokens*; rows that join are copied."""
        copies = 1 if rows == 1 else COPIES
        return self.weights_bytes + copies * rows * context_tokens * self.token_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Strictly read-only. What runs, and what was given up for it, in order."""

    rows: int
    with_draft: bool
    given_up: tuple[str, ...] = ()


def fit(target: Size, draft: Size | None, context_tokens: int, rows: int, allowed_bytes: int) -> Fit:
    """As much of what was asked for as fits into *allowed_bytes*. Raises TooLarge where not even the target does."""
    room = allowed_bytes - OVERHEAD_BYTES
    beside = 0 if draft is None else draft.held(context_tokens)
    given_up = []
    fitting = next((n for n in range(rows, 0, -1) if target.held(context_tokens, n) + beside <= room), None)
    if fitting is None and draft is not None:
        beside = 0
        fitting = 1 if target.held(context_tokens) <= room else None
    if fitting is None:
        needed = target.held(context_tokens) + OVERHEAD_BYTES
        raise TooLarge(
            f"the target needs {_gib(needed)} with {context_tokens} tokens of context, and this machine allows "
            f"{_gib(allowed_bytes)}; choose a smaller target (`nocka models`), or shorten prompts and --max-tokens"
        )
    if fitting < rows:
        given_up.append(f"{fitting} instead of {rows} results at once: more do not fit into {_gib(allowed_bytes)}")
    with_draft = draft is not None and beside > 0
    if draft is not None and not with_draft:
        given_up.append(f"no draft: it needs {_gib(draft.held(context_tokens))} beside the target")
    return Fit(rows=fitting, with_draft=with_draft, given_up=tuple(given_up))


def size_of(folder: Path, dtype: str, on_metal: bool) -> Size:
    """What the model in *folder* will take, by its files; no weight is read."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stored = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    quantized = "quantization" in config
    wide = dtype == "float32" or (dtype == "auto" and not on_metal and not quantized)
    if wide and config.get("torch_dtype", config.get("dtype")) not in ("float32", None) and not quantized:
        stored *= FLOAT32_BYTES // STORED_FLOAT_BYTES
    return Size(weights_bytes=stored, token_bytes=token_bytes(config, FLOAT32_BYTES if wide else STORED_FLOAT_BYTES))


def token_bytes(config: Mapping[str, Any], value_bytes: int) -> int:
    """Bytes of one token in the cache, keys and values of every layer; sliding windows are counted as whole."""
    inner = {**config, **(config.get("text_config") or {})}
    layers, width = int(inner.get("num_hidden_layers", 0)), int(inner.get("hidden_size", 0))
    heads = int(inner.get("num_attention_heads") or 1)
    kv_heads = int(inner.get("num_key_value_heads") or heads)
    return 2 * layers * kv_heads * int(inner.get("head_dim") or width // heads) * value_bytes


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


def _gib(count: int) -> str:
    return f"{count / GIB:.1f} GiB"
