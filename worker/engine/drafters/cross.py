"""A smaller model with another tokenizer, its proposals translated by bytes (Universal Assisted Generation)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import mlx.core as mx

from worker.engine import translate
from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.model import Model
from worker.engine.reading import Reading
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Draft, Request

TRANSLATIONS = ("direct", "naive", "context")


class CrossDrafter:
    """Proposes what *draft* would say, in tokens of *target*. The draft reads the conversation in its own template.

    Per round only the changed tail of the text is encoded for the draft, and its cache keeps the longest common prefix;
    accepted tokens and the target's own ride along with the next draft step. Where the committed text ends inside a
    token that the draft drew and still agrees with it, the draft keeps that token and its rest is proposed first.
    """

    def __init__(self, target: Tokenizer, draft: Model, translation: str) -> None:
        self._target = target
        self._draft = draft
        self._translation = translation

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._reading = Reading(self._draft, request)
        self._context = self._reading.context
        self._read_target = len(prompt)
        # The last round: how many ids the draft had read, what it said behind them, and the bytes of its reading that
        # were not committed yet.
        self._base = len(self._reading.ids)
        self._said: list[int] = []
        self._ahead = b""
        self._reading.prefill(interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        started = time.perf_counter()
        data = self._target.spell(tokens[self._read_target :])
        self._read_target = len(tokens)
        self._reading.hear(data)
        k = min(k, self._draft.context_tokens // 2)
        kept = self._kept(data) if self._translation == "context" else None
        said, self._said = self._said, []
        if kept is None or not self._context.fits(self._base + kept + k):
            kept, self._ahead = None, b""
        if min(k, limit) < 1:
            self._ahead = b""
            return Draft()
        unread = self._stand_on_text(k) if kept is None else self._stand_on_said(said[:kept])
        prepared = time.perf_counter()
        self._said = self._context.roll(unread, k, _greedy).tolist()  # type: ignore[assignment]
        drawn = time.perf_counter()
        pending = self._reading.pending if kept is None else b""
        proposal = self._translate(tokens, self._ahead, pending)[: min(limit, MAX_PROPOSED)]
        return Draft(tuple(proposal), k, time.perf_counter() - drawn + prepared - started)

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""

    def _kept(self, data: bytes) -> int | None:
        """How many tokens of the last round reach beyond *data*, just committed, and agree with it; None where none do.

        Leaves in `_ahead` the bytes that they reach beyond it.
        """
        ahead, self._ahead = self._ahead, b""
        for count in range(len(self._said) + 1):
            if count:
                piece = self._draft.tokenizer.spell(self._said[count - 1 : count])
                if not piece:
                    return None
                ahead += piece
            if len(ahead) > len(data) > 0:
                self._ahead = ahead[len(data) :] if ahead.startswith(data) else b""
                return count if self._ahead else None
        return None

    def _stand_on_said(self, said: Sequence[int]) -> list[int]:
        """Let the draft go on behind *said*, words of its own; returns the one id it has to read for that."""
        read = [*self._context.tokens[self._base - 1 : self._base], *said]
        self._base += len(said)
        self._context.rewind(self._base - 1)
        return read[-1:]

    def _stand_on_text(self, room: int) -> list[int]:
        """Let the draft go on behind the committed text; returns the ids it has to read for that."""
        self._base = len(self._reading.ids)
        return self._reading.unread(room)

    def _translate(self, tokens: Sequence[int], ahead: bytes, pending: bytes) -> list[int]:
        """What the draft said behind *tokens*, in target tokens; where it ends its turn stands the target's end."""
        tokenizer = self._draft.tokenizer
        said, ends = _until_control(tokenizer, self._said)
        pieces = _clip(tokenizer, said, pending)
        if pieces is None:
            return []
        match self._translation:
            case "direct":
                proposal = translate.direct(self._target, pieces)
                ends = ends and len(proposal) == len(pieces)
            case "naive":
                proposal = translate.naive(self._target, tokenizer.decode(said))
            case _:
                proposal = translate.in_context(self._target, tokens, ahead + b"".join(pieces))
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
