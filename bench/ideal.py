"""The byte-exact ideal: what a draft with another tokenizer can give when nothing is kept between rounds.

Everything is encoded anew, by both tokenizers, and read anew by the draft, in every round. Slow and obvious on purpose:
the incremental `cross` drafter is held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx

from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.token_bytes import complete_utf8
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Draft, Request


class IdealDrafter:
    """Proposes what *draft* says behind the whole committed text of a raw request."""

    def __init__(self, target: Tokenizer, draft: Model) -> None:
        self._target = target
        self._draft = draft

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        assert request.text is not None, "the ideal continues raw text only"
        self._prompt_text = request.text
        self._prompt_tokens = len(prompt)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        if min(k, limit) < 1:
            return Draft()
        answer = self._target.spell(tokens[self._prompt_tokens :])
        whole = complete_utf8(answer)
        ids = self._draft.tokenizer.raw(self._prompt_text + answer[:whole].decode(errors="replace"))
        said, ends = self._say(ids, k)
        pending = answer[whole:]
        if not said.startswith(pending):
            return Draft((), k)
        proposal = self._target_ids(tokens, said[len(pending) :])
        if ends:
            proposal.append(self._target.end_of_turn)
        return Draft(tuple(proposal[: min(limit, MAX_PROPOSED)]), k)

    def finish(self, tokens: Sequence[int]) -> None:
        """Nothing is remembered."""

    def _say(self, ids: list[int], k: int) -> tuple[bytes, bool]:
        """The bytes of *k* tokens of the draft behind *ids*, up to a control token, and whether that ends the turn."""
        tokenizer, cache = self._draft.tokenizer, self._draft.new_cache()
        said, unread = b"", ids
        for _ in range(k):
            token = int(mx.argmax(self._draft.forward(mx.array(unread), cache)[-1]).item())  # type: ignore[arg-type]
            piece = tokenizer.spell([token])
            if token in tokenizer.eos_ids or not piece:
                return said, token in tokenizer.eos_ids
            said, unread = said + piece, [token]
        return said, False

    def _target_ids(self, tokens: Sequence[int], data: bytes) -> list[int]:
        """*data* as target tokens behind *tokens*: the whole text encoded and cut at the committed end."""
        committed = self._target.spell(tokens)
        text = committed + data
        text = text[: complete_utf8(text)]
        if len(text) <= len(committed):
            return []
        ids = self._target.encode_middle(text.decode(errors="replace"))
        covered = first = 0
        while first < len(ids) and covered < len(committed):
            covered += len(self._target.spell([ids[first]]))
            first += 1
        if covered == len(committed) and self._target.spell(ids) == text:
            return ids[first:]
        return self._target.encode_bytes(text[len(committed) :])
