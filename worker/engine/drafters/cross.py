"""A smaller model with another tokenizer, its proposals translated by bytes (Universal Assisted Generation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import mlx.core as mx

from worker.engine import translate
from worker.engine.context import Context
from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.model import Model
from worker.engine.retokenize import Retokenized
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Draft, Request

TRANSLATIONS = ("direct", "naive", "context")


class CrossDrafter:
    """Proposes what *draft* would say, in tokens of *target*. The draft reads the conversation in its own template.

    Per round only the changed tail of the text is encoded for the draft, and its cache keeps the longest common prefix;
    accepted tokens and the target's own ride along with the next draft step.
    """

    def __init__(self, target: Tokenizer, draft: Model, translation: str) -> None:
        self._target = target
        self._draft = draft
        self._translation = translation

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        tokenizer = self._draft.tokenizer
        prefix = (
            tokenizer.raw(request.text) if request.text is not None else tokenizer.conversation(request.turns or ())
        )
        self._context = Context(self._draft)
        self._text = Retokenized(tokenizer, prefix)
        self._read_target = len(prompt)
        self._context.prefill(prefix[:-1], interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        started = time.perf_counter()
        unchanged = self._text.extend(self._target.spell(tokens[self._read_target :]))
        self._read_target = len(tokens)
        ids = self._text.ids
        if min(k, limit) < 1 or len(ids) + k > self._draft.context_tokens:
            return Draft()
        common = self._context.keep_common(ids, min(unchanged, len(self._context)))
        if common == len(ids):
            common -= 1
            self._context.rewind(common)
        translate_s = time.perf_counter() - started
        drafted: list[int] = self._context.roll(ids[common:], k, _greedy).tolist()  # type: ignore[assignment]
        started = time.perf_counter()
        proposal = self._translate(tokens, drafted)[: min(limit, MAX_PROPOSED)]
        return Draft(tuple(proposal), k, translate_s + time.perf_counter() - started)

    def _translate(self, tokens: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """*drafted* in target tokens; the target's end of turn stands where the draft ends its own."""
        tokenizer = self._draft.tokenizer
        said, ends = _until_control(tokenizer, drafted)
        pieces = _clip(tokenizer, said, self._text.pending)
        if pieces is None:
            return []
        match self._translation:
            case "direct":
                proposal = translate.direct(self._target, pieces)
                ends = ends and len(proposal) == len(pieces)
            case "naive":
                proposal = translate.naive(self._target, tokenizer.decode(said))
            case _:
                proposal = translate.in_context(self._target, tokens, b"".join(pieces))
        return [*proposal, self._target.end_of_turn] if ends else proposal


def _greedy(logits: mx.array, position: int) -> mx.array:
    return mx.argmax(logits, axis=-1)


def _until_control(tokenizer: Tokenizer, drafted: Sequence[int]) -> tuple[list[int], bool]:
    """The ids before the first control token, and whether that one ends the turn."""
    for index, token_id in enumerate(drafted):
        if token_id in tokenizer.eos_ids or not tokenizer.spell([token_id]):
            return list(drafted[:index]), token_id in tokenizer.eos_ids
    return list(drafted), False


def _clip(tokenizer: Tokenizer, said: Sequence[int], pending: bytes) -> list[bytes] | None:
    """The bytes of each id without *pending*, which is committed already; None where they contradict it."""
    pieces: list[bytes] = []
    for token_id in said:
        piece = tokenizer.spell([token_id])
        shared = min(len(piece), len(pending))
        if piece[:shared] != pending[:shared]:
            return None
        pending = pending[shared:]
        if piece[shared:]:
            pieces.append(piece[shared:])
    return pieces
