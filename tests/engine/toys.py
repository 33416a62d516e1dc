"""Tiny random models of real architectures, over alphabets so small that every outcome can be counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import gemma3_text, llama, mamba
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models
from transformers import PreTrainedTokenizerFast

from worker.engine.model import Model
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import ModelRef

LETTERS = "abcdefghij"
#: Two ways to cut the same text: the second has pairs.
PAIRS = ["ab", "cd", "ef", "aa", "ba", "gh"]


def toy_tokenizer(pieces: Sequence[str] = LETTERS, pairs: Sequence[str] = (), spare: int = 0) -> Tokenizer:
    """One token a piece, *pairs* of them merged, `spare` ids that no text gives; the last id ends the turn."""
    names = [*pieces, *pairs, *(f"<0x{0x80 + index:02X}>" for index in range(spare)), "<end>"]
    merges = [(pair[0], pair[1]) for pair in pairs]
    backend = Backend(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=merges))
    backend.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    return Tokenizer(wrapped, [len(names) - 1])


def toy_model(network: Any, tokenizer: Tokenizer, vocab_size: int, seed: int = 1, scale: float = 1.0) -> Model:
    """*network* with random weights; *scale* makes its choices more or less decided."""
    mx.random.seed(seed)
    network.update(tree_map(lambda weight: mx.random.normal(weight.shape) * scale, network.parameters()))
    mx.eval(network.parameters())
    return Model(
        ref=ModelRef(source="toy"),
        revision=None,
        network=network,
        tokenizer=tokenizer,
        dtype="float32",
        quantized=False,
        context_tokens=4096,
        vocab_size=vocab_size,
        size_bytes=0,
    )


class Talkative(llama.Model):  # type: ignore[misc]
    """A llama that seldom ends its turn, which is its last token."""

    def __call__(self, inputs: mx.array, cache: Any = None, input_embeddings: Any = None) -> mx.array:
        logits: mx.array = super().__call__(inputs, cache, input_embeddings)
        size = logits.shape[-1]
        return logits - 2.5 * (mx.arange(size) == size - 1)


def toy_llama(tokenizer: Tokenizer, seed: int = 1, scale: float = 0.5, layers: int = 1) -> Model:
    """A llama of one layer and width 16 over the toy vocabulary."""
    size = len(tokenizer.table)
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=16,
        num_hidden_layers=layers,
        intermediate_size=16,
        num_attention_heads=2,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        vocab_size=size,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
    )
    return toy_model(Talkative(arguments), tokenizer, size, seed, scale)


def sliding_llama(window: int) -> Model:
    """Three layers, two of which see only the last *window* tokens."""
    tokenizer = toy_tokenizer()
    arguments = llama.ModelArgs(
        model_type="llama",
        hidden_size=32,
        num_hidden_layers=3,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        rms_norm_eps=1e-5,
        vocab_size=len(tokenizer.table),
        tie_word_embeddings=False,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=window,
    )
    return toy_model(llama.Model(arguments), tokenizer, len(tokenizer.table), scale=0.3)


def sliding_gemma(window: int) -> Model:
    """Gemma 3's text model: every second layer sees only the last *window* tokens."""
    tokenizer = toy_tokenizer()
    arguments = gemma3_text.ModelArgs(
        model_type="gemma3_text",
        hidden_size=32,
        num_hidden_layers=4,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        vocab_size=len(tokenizer.table),
        sliding_window=window,
        sliding_window_pattern=2,
    )
    return toy_model(gemma3_text.Model(arguments), tokenizer, len(tokenizer.table), scale=0.3)


def recurrent(tokenizer: Tokenizer | None = None) -> Model:
    """A state-space model, whose state cannot be taken back."""
    tokenizer = tokenizer or toy_tokenizer()
    arguments = mamba.ModelArgs(
        model_type="mamba",
        vocab_size=len(tokenizer.table),
        hidden_size=16,
        intermediate_size=32,
        state_size=4,
        num_hidden_layers=2,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        time_step_rank=2,
    )
    return toy_model(mamba.Model(arguments), tokenizer, len(tokenizer.table), scale=0.3)
