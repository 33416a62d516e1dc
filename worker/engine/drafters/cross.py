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
from worker.engine.straddle import MAX_WORD_TOKENS, Straddle
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Draft, Request

TRANSLATIONS = ("direct", "naive", "context")


class CrossDrafter:
    """Proposes what *draft* would say, in tokens of *target*. The draft reads the conversation in its own template.

    Per round only the changed tail of the text is encoded for the draft, and its cache keeps the longest common prefix;
    accepted tokens and the target's own ride along with the next draft step. Where the committed text ends inside a
    token that the draft drew and still agrees with it, the draft keeps that token and its rest is proposed first; where
    it may end inside one that the draft did not draw yet, the draft draws that one.
    """

    def __init__(self, target: Tokenizer, draft: Model, translation: str) -> None:
        self._target = target
        self._draft = draft
        self._translation = translation
        self._straddle = Straddle(draft.tokenizer)

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self._reading = Reading(self._draft, request)
        self._context = self._reading.context
        self._read_target = len(prompt)
        self._prompt_ids = len(self._reading.ids)
        # The last round: how many ids the draft had read, what it said behind them, the bytes of that beyond the
        # committed text, token by token, and the bytes of its reading that were not committed yet.
        self._base = self._prompt_ids
        self._said: list[int] = []
        self._pieces: list[bytes] = []
        self._ahead = b""
        self._reading.prefill(interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        started = time.perf_counter()
        data = self._target.spell(tokens[self._read_target :])
        self._read_target = len(tokens)
        self._reading.hear(data)
        k = min(k, self._draft.context_tokens // 2)
        in_context = self._translation == "context"
        ahead = self._ahead
        kept = self._kept(data) if in_context else None
        as_said = None
        if kept is None or not self._context.fits(self._base + kept + k):
            kept, self._ahead = None, b""
            as_said = self._as_said(data, ahead) if in_context else None
        said, self._said, self._pieces = self._said, [], []
        if min(k, limit) < 1:
            self._ahead = b""
            return Draft()
        if kept is not None:
            unread, word = self._stand_on_said(said[:kept]), None
        else:
            word = self._last_word(as_said) if in_context else None
            unread = self._stand_on_text(as_said, k, word or ())
        prepared = time.perf_counter()
        self._draw(unread, k, word)
        drawn = time.perf_counter()
        proposal = self._translate(tokens)[: min(limit, MAX_PROPOSED)]
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
                if not self._draft.tokenizer.piece(self._said[count - 1]):
                    return None
                ahead += self._pieces[count - 1]
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

    def _as_said(self, data: bytes, ahead: bytes) -> list[int] | None:
        """*data*, just committed, in the tokens that the draft said of it and others behind them; None without those.

        They go behind the first `_base` tokens that the draft has read.
        """
        covered, count = len(ahead), 0
        if not data.startswith(ahead):
            return None
        for piece in self._pieces:
            if not piece or not data.startswith(piece, covered):
                break
            covered, count = covered + len(piece), count + 1
        whole = len(data) - len(self._reading.pending)
        if not count or covered > whole:
            return None
        rest = self._draft.tokenizer.encode_bytes(data[covered:whole])
        if self._draft.tokenizer.spell(rest) != data[covered:whole]:
            return None
        return [*self._said[:count], *rest]

    def _last_word(self, as_said: Sequence[int] | None) -> list[int]:
        """The last word of the text so far, in the draft's tokens."""
        if as_said is None:
            return self._straddle.last_word(self._reading.ids, self._prompt_ids)
        earliest = max(self._prompt_ids, self._base - MAX_WORD_TOKENS)
        return self._straddle.last_word([*self._context.tokens[earliest : self._base], *as_said], 0)

    def _stand_on_text(self, as_said: Sequence[int] | None, room: int, word: Sequence[int]) -> list[int]:
        """Let the draft go on behind the committed text; returns the ids it has to read for that, *word* among them."""
        if as_said is None:
            self._base = len(self._reading.ids)
            return self._reading.unread(room, again=len(word) + 1)
        length, self._base = self._base, self._base + len(as_said)
        return self._context.go_on(length, as_said, room, len(word) + 1)

    def _draw(self, unread: Sequence[int], k: int, word: Sequence[int] | None) -> None:
        """Let the draft say *k* tokens behind *unread*, the first perhaps in place of an end of *word*."""
        if word is None:
            self._said = self._context.roll(unread, k, _greedy).tolist()  # type: ignore[assignment]
            self._pieces = [self._draft.tokenizer.piece(token_id) for token_id in self._said]
            return
        rows = self._context.append(unread)[-len(word) - 1 :]
        opening = self._straddle.likeliest(rows, word, self._reading.pending)
        if opening is None:
            return
        self._base -= len(word) - opening.kept
        self._reading.leave(self._base)
        self._said = [opening.token]
        if k > 1:
            self._said += self._context.roll(self._said, k - 1, _greedy).tolist()  # type: ignore[arg-type]
        self._pieces = [self._draft.tokenizer.piece(token_id) for token_id in self._said]
        self._pieces[0] = self._pieces[0][opening.repeated :]

    def _translate(self, tokens: Sequence[int]) -> list[int]:
        """What the draft said behind *tokens*, in target tokens; where it ends its turn stands the target's end."""
        tokenizer = self._draft.tokenizer
        said, ends = _until_control(tokenizer, self._said)
        if self._translation == "context":
            proposal = translate.in_context(self._target, tokens, self._ahead + b"".join(self._pieces[: len(said)]))
            return [*proposal, self._target.end_of_turn] if ends else proposal
        pieces = _clip(tokenizer, said, self._reading.pending)
        if pieces is None:
            return []
        if self._translation == "direct":
            proposal = translate.direct(self._target, pieces)
            ends = ends and len(proposal) == len(pieces)
        else:
            proposal = translate.naive(self._target, tokenizer.decode(said))
        return [*proposal, self._target.end_of_turn] if ends else proposal


def _greedy(logits: mx.array, position: int) -> mx.array:
    return mx.argmax(logits, axis=-1)


def _until_control(tokenizer: Tokenizer, drafted: Sequence[int]) -> tuple[list[int], bool]:
    """The ids before the first control token, and whether that one ends the turn."""
    for index, token_id in enumerate(drafted):
        if token_id in tokenizer.eos_ids or not tokenizer.piece(token_id):
            return list(drafted[:index]), token_id in tokenizer.eos_ids
    return list(drafted), False


def _clip(tokenizer: Tokenizer, said: Sequence[int], pending: bytes) -> list[bytes] | None:
    """The bytes of each id without *pending*, which is committed already; None where they contradict it."""
    pieces: list[bytes] = []
    for token_id in said:
        piece = tokenizer.piece(token_id)
        shared = min(len(piece), len(pending))
        if piece[:shared] != pending[:shared]:
            return None
        pending = pending[shared:]
        if piece[shared:]:
            pieces.append(piece[shared:])
    return pieces
