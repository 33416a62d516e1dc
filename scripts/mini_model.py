"""A llama in PyTorch, just large enough to train the mini family: the same function that `mlx_lm` computes from its files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

ROPE_BASE = 10_000.0
NORM_EPS = 1e-5


@dataclasses.dataclass(frozen=True)
class Shape:
    """Strictly read-only. vocab, width, layers, heads, kv_heads, hidden units of the MLP, head_dim."""

    vocab: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    head_dim: int = 64

    def config(self, bos: int | None, eos: int) -> dict[str, Any]:
        """The Hugging Face `config.json` of this shape."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.width,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.hidden,
            "hidden_act": "silu",
            "rms_norm_eps": NORM_EPS,
            "rope_theta": ROPE_BASE,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": bos,
            "eos_token_id": eos,
            "torch_dtype": "float16",
        }


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape  # (B, L, width)

        def split(values: torch.Tensor, heads: int) -> torch.Tensor:
            return values.view(batch, length, heads, self.shape.head_dim).transpose(1, 2)

        query = _rotate(split(self.q_proj(x), self.shape.heads), cos, sin)
        key = _rotate(split(self.k_proj(x), self.shape.kv_heads), cos, sin)
        value = split(self.v_proj(x), self.shape.kv_heads)
        group = self.shape.heads // self.shape.kv_heads
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=NORM_EPS)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Token ids (B, L) -> logits (B, L, vocab); the embedding is the output head too."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.width)
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width, eps=NORM_EPS)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for layer in self.layers:
            for linear in (m for m in layer.modules() if isinstance(m, nn.Linear)):
                nn.init.normal_(linear.weight, std=0.02)
            nn.init.zeros_(layer.self_attn.o_proj.weight)
            nn.init.zeros_(layer.mlp.down_proj.weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        half = self.shape.head_dim // 2
        frequencies = ROPE_BASE ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.arange(ids.shape[1], dtype=torch.float32)[:, None] * frequencies
        cos, sin = angles.cos(), angles.sin()  # (L, head_dim / 2)
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return functional.linear(self.norm(x), self.embed_tokens.weight)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def grow(small: dict[str, torch.Tensor], model: Llama) -> None:
    """Give *model* the function of *small*, a shallower state dict with fewer hidden units.

    New layers start as identities, since a fresh layer's output projections are zero. Old layers are spread evenly. New
    hidden units keep their fresh input weights and write nothing, so that they have a gradient from the first step.
    """
    old_layers = 1 + max(int(name.split(".")[1]) for name in small if name.startswith("layers."))
    fresh = model.state_dict()
    for name, weight in small.items():
        parts = name.split(".")
        if parts[0] == "layers":
            parts[1] = str(round((int(parts[1]) + 1) * len(model.layers) / old_layers) - 1)
        grown = fresh[".".join(parts)]
        grown[tuple(slice(size) for size in weight.shape)] = weight
    model.load_state_dict(fresh)


def save_weights(model: Llama, path: Path) -> None:
    """Write float16 safetensors under the names that Hugging Face and `mlx_lm` expect."""
    weights = {f"model.{name}": weight.to(torch.float16).contiguous() for name, weight in model.state_dict().items()}
    save_file(weights, str(path), metadata={"format": "pt"})
