"""Logits -> distribution -> token.

The target's token at a position is the argmax at temperature 0, else the argmax of processed logits plus Gumbel noise
(Gumbel-max: its law is the softmax). The noise is a function of (seed, custom_id, position) alone, so seeded output is
the same whatever drafter, k, order or resume. Penalty, temperature, top-k, top-p and min-p follow in this order, as in
vLLM and Hugging Face.
"""

from __future__ import annotations

import hashlib

import mlx.core as mx

from worker.engine.values import Sampling


class Sampler:
    """Draws the target's token. Pure: what it returns depends on its arguments alone."""

    def __init__(self, sampling: Sampling, custom_id: str, vocab_size: int) -> None:
        self._sampling = sampling
        self._vocab_size = vocab_size
        digest = hashlib.sha256(f"{sampling.seed}\0{custom_id}".encode()).digest()
        self._key_high = int.from_bytes(digest[:4], "big")
        self._key_low = int.from_bytes(digest[4:8], "big")

    @property
    def remembers(self) -> bool:
        """Whether the history of committed tokens matters."""
        return self._sampling.repetition_penalty != 1.0

    def seen(self, tokens: list[int]) -> mx.array | None:
        """The set of *tokens* as a mask (V,), to be kept and extended by `see`; None where history does not matter."""
        if not self.remembers:
            return None
        mask = mx.zeros((self._vocab_size,), dtype=mx.bool_)
        return self.see(mask, mx.array(tokens)) if tokens else mask

    def see(self, mask: mx.array, tokens: mx.array) -> mx.array:
        """*mask* with *tokens* (n,) added."""
        return mx.logical_or(mask, (mx.arange(self._vocab_size)[None] == tokens[:, None]).any(axis=0))

    def choose(
        self, logits: mx.array, position: int, mask: mx.array | None = None, proposal: mx.array | None = None
    ) -> mx.array:
        """The target's token at each row of *logits* (m, V), the first row at *position*: ids (m,), lazy.

        A draft of the same tokenizer may be padded to another width; it draws with the same noise all the same.
        *mask* holds the committed tokens; row j has seen *proposal*[:j] too, which stands whenever row j counts.
        """
        return mx.argmax(self.scores(logits, position, mask, proposal), axis=-1)

    def scores(
        self, logits: mx.array, position: int, mask: mx.array | None = None, proposal: mx.array | None = None
    ) -> mx.array:
        """What decides: the target's token has the highest score of its row. Arguments as of `choose`; (m, V), lazy."""
        if logits.shape[1] > self._vocab_size:
            logits = logits[:, : self._vocab_size]
        if mask is not None:
            logits = self._penalize(logits, mask, proposal)
        if self._sampling.temperature == 0.0:
            return logits
        scaled = self._filter(logits.astype(mx.float32) * (1.0 / self._sampling.temperature))
        noise = mx.stack([self._noise(position + row) for row in range(logits.shape[0])])
        return scaled + noise[:, : logits.shape[1]]

    def _noise(self, position: int) -> mx.array:
        """Gumbel noise (V,) of *position*, always of the target's width: MLX's bits depend on the shape asked for."""
        key = mx.array([self._key_high, (self._key_low + position) & 0xFFFFFFFF], dtype=mx.uint32)
        return mx.random.gumbel((self._vocab_size,), key=key)

    def _penalize(self, logits: mx.array, mask: mx.array, proposal: mx.array | None) -> mx.array:
        rows = mask[None]
        if proposal is not None and proposal.size:
            drafted = mx.arange(self._vocab_size)[None] == proposal[:, None]  # (m - 1, V)
            earlier = mx.cumsum(drafted.astype(mx.int32), axis=0) > 0
            rows = mx.concatenate([rows, mx.logical_or(rows, earlier)])
        penalty = self._sampling.repetition_penalty
        return mx.where(rows, mx.where(logits > 0, logits / penalty, logits * penalty), logits)

    def _filter(self, scaled: mx.array) -> mx.array:
        sampling = self._sampling
        if 0 < sampling.top_k < scaled.shape[1]:
            kth = mx.sort(scaled, axis=-1)[:, -sampling.top_k][:, None]
            scaled = mx.where(scaled < kth, -mx.inf, scaled)
        if sampling.top_p < 1.0:
            scaled = _keep_top_p(scaled, sampling.top_p)
        if sampling.min_p > 0.0:
            floor = scaled.max(axis=-1, keepdims=True) + mx.log(mx.array(sampling.min_p))
            scaled = mx.where(scaled < floor, -mx.inf, scaled)
        return scaled


def _keep_top_p(scaled: mx.array, top_p: float) -> mx.array:
    """Keep the smallest set of most likely tokens whose probability reaches *top_p*; the first always stays."""
    order = mx.argsort(-scaled, axis=-1)
    likely_first = mx.take_along_axis(mx.softmax(scaled, axis=-1, precise=True), order, axis=-1)
    before = mx.cumsum(likely_first, axis=-1) - likely_first
    kept = mx.put_along_axis(mx.zeros(scaled.shape, dtype=mx.bool_), order, before < top_p, axis=-1)
    return mx.where(kept, scaled, -mx.inf)
