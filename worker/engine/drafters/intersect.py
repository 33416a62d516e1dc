"""A smaller model with another tokenizer that may only say what both vocabularies spell as one token (TLI)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import mlx.core as mx

from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.errors import DraftMismatch
from worker.engine.model import Model
from worker.engine.reading import Reading
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Draft, Request

#: A draft that shares less than this with the target would say nothing useful.
MIN_OVERLAP = 0.1
MIN_OVERLAP_TOKENS = 256


class IntersectDrafter:
    """Proposes what *draft* would say in the tokens that it shares with *target*: those of the same bytes.

    Its logits are put in the target's order, so that each draw is a target token and is made with the target's own
    noise. Its end of turn is the target's. Source: token-level intersection, Timor et al., arXiv 2502.05202.
    """

    def __init__(self, target: Tokenizer, draft: Model) -> None:
        """Raise DraftMismatch where they share less than 10 % of the draft's tokens, or fewer than 256."""
        spelled = [(token_id, piece) for token_id, piece in enumerate(draft.tokenizer.table) if piece]
        shared = {target.exact[piece]: token_id for token_id, piece in spelled if piece in target.exact}
        #: The share of the draft's tokens that are exactly one of the target's, 0..1.
        self.overlap = len(shared) / max(1, len(spelled))
        if self.overlap < MIN_OVERLAP or len(shared) < MIN_OVERLAP_TOKENS:
            raise DraftMismatch(
                f"{draft.ref.source} shares only {len(shared)} of its {len(spelled)} tokens ({self.overlap:.1%}) with "
                f"the target; --drafter intersect needs {MIN_OVERLAP:.0%} and {MIN_OVERLAP_TOKENS}: use --drafter cross"
            )
        shared[target.end_of_turn] = draft.tokenizer.end_of_turn
        width = max(len(target.table), target.end_of_turn + 1)
        order = [shared.get(token_id, -1) for token_id in range(width)]
        self._target = target
        self._draft = draft
        self._draft_ids = mx.array([max(0, token_id) for token_id in order], dtype=mx.int32)
        self._barred = mx.array([-mx.inf if token_id < 0 else 0.0 for token_id in order])

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._sampler = sampler
        self._read_target = len(prompt)
        self._reading = Reading(self._draft, request)
        self._reading.prefill(interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        started = time.perf_counter()
        self._reading.hear(self._target.spell(tokens[self._read_target :]))
        self._read_target = len(tokens)
        count = min(k, limit, MAX_PROPOSED, self._draft.context_tokens // 2)
        half = self._pending_ids()
        if count < 1 or half is None:
            return Draft()
        unread = self._reading.unread(count, half)
        translate_s = time.perf_counter() - started
        drawn: list[mx.array] = []

        def choose(logits: mx.array, position: int) -> mx.array:
            drawn.append(self._sampler.choose(self._in_target_order(logits), len(tokens) + len(drawn)))
            return self._draft_ids[drawn[-1]]

        self._reading.context.roll(unread, count, choose)
        return Draft(mx.concatenate(drawn), count, translate_s)

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""

    def _pending_ids(self) -> list[int] | None:
        """The text's incomplete last character, one token a byte; None where the draft has no such tokens."""
        exact = self._draft.tokenizer.exact
        singles = [bytes([value]) for value in self._reading.pending]
        return [exact[single] for single in singles] if all(single in exact for single in singles) else None

    def _in_target_order(self, logits: mx.array) -> mx.array:
        """Draft logits (n, V of the draft) as (n, V of the target), -inf where the draft has no such token."""
        return logits[:, self._draft_ids].astype(mx.float32) + self._barred
