"""A target that says a given text: real forwards, the text's next token in place of the argmax.

So a draft is measured on real prose, where the greedy text of a tiny model would soon repeat itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module

from worker.engine.model import Model

ABOVE_ALL = 1e4
NO_TOKEN = -1
#: A text may be read this far beyond its end, by a proposal that is longer than what is left.
SLACK_TOKENS = 64


class Replayed(Module):
    """*network*, with the logit of the next of *ids* raised above all others; behind their end it is itself."""

    def __init__(self, network: Module, ids: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inner = network
        # Row j of a forward at offset o draws token o + j + 1.
        self._next = mx.array([*ids[1:], *[NO_TOKEN] * SLACK_TOKENS], dtype=mx.int32)

    @property
    def layers(self) -> Any:
        return self.inner.layers

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        """Logits (1, n, V) of *inputs* (1, n)."""
        offset = cache[0].offset
        logits: mx.array = self.inner(inputs, cache=cache)
        due = self._next[offset : offset + inputs.shape[1]]
        return mx.where(mx.arange(logits.shape[-1]) == due[:, None], ABOVE_ALL, logits)


def replayed(model: Model, ids: Sequence[int]) -> Model:
    """*model* as one that says *ids*, the prompt's first."""
    return dataclasses.replace(model, network=Replayed(model.network, ids))
