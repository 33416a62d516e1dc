"""The one adapter to `mlx_lm` models: loading, data type, memory, context length."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, load_tokenizer

from worker.engine.errors import ModelNotLoadable, PromptNotUsable
from worker.engine.memory import FLOATING, Size, layers_bytes, weights_bytes
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import ModelRef

CODE = ["*.py"]
FILES = ["*.json", "*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt", "*.jinja"]
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
DEFAULT_CONTEXT_TOKENS = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """Strictly read-only. A loaded network with its tokenizer."""

    ref: ModelRef
    #: The commit it was loaded from, where the files came from a hub.
    revision: str | None
    network: Module
    tokenizer: Tokenizer
    #: The type of its unquantised weights.
    dtype: str
    quantized: bool
    #: How many tokens it can read.
    context_tokens: int
    #: Width of its logits, padding counted.
    vocab_size: int
    size_bytes: int

    def forward(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """Logits (n, V) of *ids* (n,) read behind *cache*, which grows by n; lazy."""
        logits: mx.array = self.network(ids[None], cache=cache)
        return logits[0]

    def new_cache(self) -> list[Any]:
        """An empty cache for one sequence, one entry per layer."""
        return list(make_prompt_cache(self.network))

    def describe(self) -> dict[str, Any]:
        """What belongs in a result's configuration."""
        trusted = {"trust_remote_code": True} if self.ref.trusted else {}
        return {
            "source": self.ref.source,
            "revision": self.revision,
            "dtype": self.dtype,
            "quantized": self.quantized,
            "size_bytes": self.size_bytes,
            **trusted,
        }


def on_metal() -> bool:
    """Whether MLX computes on an Apple GPU here."""
    return bool(mx.metal.is_available()) and mx.default_device() == mx.Device(mx.gpu)


def load(ref: ModelRef) -> Model:
    """Load *ref*. Raises ModelNotLoadable with what was needed, what there is, and what to type instead."""
    folder, revision = _locate(ref)
    _refuse_own_code(ref, folder)
    try:
        network, config = load_model(folder, lazy=True, trust_remote_code=ref.trusted)
        tokenizer = _tokenizer(ref, folder, config)
        tokenizer.check_template()
    except PromptNotUsable as error:
        raise ModelNotLoadable(f"{ref.source}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        raise ModelNotLoadable(f"{ref.source} cannot be loaded: {type(error).__name__}: {error}") from error
    quantized = "quantization" in config
    _cast(network, ref.dtype, quantized)
    mx.eval(network.parameters())
    if on_metal():
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    weights: list[mx.array] = list(dict(tree_flatten(network.parameters())).values())
    floating = [weight.dtype for weight in weights if mx.issubdtype(weight.dtype, mx.floating)]
    return Model(
        ref=ref,
        revision=revision,
        network=network,
        tokenizer=tokenizer,
        dtype=str(floating[0]).removeprefix("mlx.core."),
        quantized=quantized,
        context_tokens=_context_tokens(config),
        vocab_size=int(network(mx.array([[0]])).shape[-1]),
        size_bytes=sum(weight.nbytes for weight in weights),
    )


def size_of(ref: ModelRef) -> Size:
    """What *ref* will take, by its files; nothing of it is loaded. Raises ModelNotLoadable."""
    folder, _ = _locate(ref)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = [tensor for path in sorted(folder.glob("model*.safetensors")) for tensor in _tensors(path)]
        held = _held_as(ref.dtype, "quantization" in config)
        width = None if held == "stored" else DTYPES[held].size
        stored = Counter[str]()
        for dtype, size_bytes in tensors:
            stored[dtype] += size_bytes if dtype in FLOATING else 0
        computed = FLOATING.get(max(stored, key=stored.__getitem__, default="F32"), 4) if width is None else width
        token_bytes, windowed_token_bytes, window_tokens = layers_bytes(config, computed)
        return Size(
            name=ref.source,
            weights_bytes=weights_bytes(tensors, width),
            token_bytes=token_bytes,
            windowed_token_bytes=windowed_token_bytes,
            window_tokens=window_tokens,
            context_tokens=_context_tokens(config),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelNotLoadable(f"{ref.source} cannot be loaded: {type(error).__name__}: {error}") from error


def _tensors(path: Path) -> list[tuple[str, int]]:
    """The type and the bytes of each tensor in a safetensors file, by its header."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    found = [tensor for name, tensor in header.items() if name != "__metadata__"]
    return [(tensor["dtype"], tensor["data_offsets"][1] - tensor["data_offsets"][0]) for tensor in found]


def load_tokenizer_of(ref: ModelRef) -> Tokenizer:
    """The tokenizer of *ref* without its weights. Raises ModelNotLoadable."""
    folder, _ = _locate(ref)
    _refuse_own_code(ref, folder)
    try:
        return _tokenizer(ref, folder, json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, ImportError) as error:
        raise ModelNotLoadable(f"{ref.source} has no usable tokenizer: {type(error).__name__}: {error}") from error


def _tokenizer(ref: ModelRef, folder: Path, config: dict[str, Any]) -> Tokenizer:
    # Said in both cases: left out, transformers asks whoever sits at the terminal.
    trust = {"trust_remote_code": ref.trusted}
    wrapped = load_tokenizer(folder, trust, eos_token_ids=config.get("eos_token_id"))
    return Tokenizer(wrapped._tokenizer, sorted(wrapped.eos_token_ids))


def _refuse_own_code(ref: ModelRef, folder: Path) -> None:
    """Raise ModelNotLoadable for a model that wants code of its own to be run and was not named for it."""
    wanted = [] if ref.trusted else _own_code(folder)
    if wanted:
        raise ModelNotLoadable(
            f"{ref.source} wants to run code of its own ({', '.join(wanted)}) on this machine; nothing of it was run. "
            f"If you trust whoever wrote it, ask again with --trust-remote-code {ref.source}"
        )


def _own_code(folder: Path) -> list[str]:
    """What the files of a model name as code of its own: `model_file` for mlx_lm, `auto_map` for transformers."""
    config, tokenizer = _json(folder / "config.json"), _json(folder / "tokenizer_config.json")
    named = [config.get("model_file"), config.get("auto_map"), tokenizer.get("auto_map")]
    return sorted(set(itertools.chain.from_iterable(map(_names, named))))


def _names(value: Any) -> list[str]:
    """Every string in *value*, which may be one, or a list or table of them with gaps."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return [name for one in inside for name in _names(one)]
    return [] if value is None else [str(value)]


def _json(path: Path) -> dict[str, Any]:
    """The object in *path*; empty where there is none that can be read, which loading finds out by itself."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _locate(ref: ModelRef) -> tuple[Path, str | None]:
    """The folder of *ref*, downloaded first where it names a hub's repository, and the commit it holds."""
    folder = Path(ref.source).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelNotLoadable(f"{folder} holds no model: config.json is missing; give the folder that has it")
        return folder, ref.revision
    if folder.is_absolute():
        raise ModelNotLoadable(f"{folder} does not exist; give a model's folder, or see `nocka models` for names")
    try:
        wanted = [*FILES, *CODE] if ref.trusted else FILES
        folder = Path(snapshot_download(ref.source, revision=ref.revision, allow_patterns=wanted))
    except (OSError, ValueError, HFValidationError) as error:
        raise ModelNotLoadable(
            f"{ref.source} is neither a folder here nor a repository that could be downloaded "
            f"({type(error).__name__}: {str(error).splitlines()[0]}); "
            "see `nocka models` for names, or give a local folder"
        ) from error
    return folder, folder.name


def _cast(network: Module, dtype: str, quantized: bool) -> None:
    held = _held_as(dtype, quantized)
    if held != "stored":
        network.set_dtype(DTYPES[held])


def _held_as(dtype: str, quantized: bool) -> str:
    """How to hold the floating weights. `auto`: as stored on Metal and when quantised, else float32 on the CPU."""
    if dtype != "auto":
        return dtype
    return "stored" if on_metal() or quantized else "float32"


def _context_tokens(config: dict[str, Any]) -> int:
    inner = config.get("text_config") or {}
    return int(config.get("max_position_embeddings") or inner.get("max_position_embeddings") or DEFAULT_CONTEXT_TOKENS)
