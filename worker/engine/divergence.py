"""Where two generations that should be equal part, and by how little: a near tie that two kernels round differently.

In half precision a forward of several tokens need not give the bits of single ones. Then each token is still the
target's own choice for the logits of its forward, and the two choices all but tie. Anything else is a defect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import mlx.core as mx

from worker.engine.context import Context
from worker.engine.model import Model
from worker.engine.sampling import Sampler

#: One step of bfloat16 between 16 and 32, where the highest logits are. In logits, over the temperature if sampled.
TIE_GAP = 0.125
ROWS_AT_ONCE = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first difference. `expected` and `got` are token ids, None where that answer had ended."""

    #: Counted from the first token of the answer.
    index: int
    expected: int | None
    got: int | None
    #: How far apart the target scores the two, 0 or more.
    gap: float

    @property
    def is_near_tie(self) -> bool:
        return self.gap <= TIE_GAP


def compare(
    target: Model, sampler: Sampler, prompt: Sequence[int], expected: Sequence[int], got: Sequence[int]
) -> Divergence | None:
    """The first difference between two answers to *prompt*, scored by a fresh reading; None where they are equal.

    An answer that is shorter is taken to have ended its turn.
    """
    index = next((i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]), None)
    if index is None:
        if len(expected) == len(got):
            return None
        index = min(len(expected), len(got))
    first, second = (answer[index] if index < len(answer) else None for answer in (expected, got))
    context = Context(target)
    history = [*prompt, *expected[:index]]
    context.prefill(history[:-1], lambda: False)
    row = sampler.scores(context.append(history[-1:]), len(history), sampler.seen(history))[0]
    gap = abs(_score(target, row, first) - _score(target, row, second))
    return Divergence(index=index, expected=first, got=second, gap=gap)


def replay(target: Model, sampler: Sampler, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """Read *prompt* and *tokens* afresh: by how much each token misses the best score at its place, 0 if it has it."""
    gaps: list[float] = []
    for part in _gaps(target, sampler, prompt, tokens):
        gaps.extend(part.tolist())  # type: ignore[arg-type]
    return gaps


def _gaps(target: Model, sampler: Sampler, prompt: Sequence[int], tokens: Sequence[int]) -> Iterator[mx.array]:
    context = Context(target)
    context.prefill(prompt[:-1], lambda: False)
    history = list(prompt)
    for start in range(0, len(tokens), ROWS_AT_ONCE):
        part = list(tokens[start : start + ROWS_AT_ONCE])
        logits = context.append([history[-1], *part[:-1]])
        known = mx.array(part[:-1], dtype=mx.int32)
        scores = sampler.scores(logits, len(history), sampler.seen(history), known)
        yield scores.max(axis=-1) - mx.take_along_axis(scores, mx.array(part)[:, None], axis=-1)[:, 0]
        history += part


def _score(target: Model, row: mx.array, token: int | None) -> float:
    if token is not None:
        return float(row[token].item())  # type: ignore[arg-type]
    return max(_score(target, row, token_id) for token_id in target.tokenizer.eos_ids)
