"""What fits into this machine's memory beside a request, found out before anything is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from worker.engine.memory import Asked, Fit, Size, fit
from worker.engine.model import load_tokenizer_of, size_of
from worker.engine.reading import prompt_of
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import ModelRef, Request


class Room:
    """Knows the sizes of models by their files, and counts tokens only where memory is so scarce that it matters."""

    def __init__(self, allowed_bytes: Callable[[], int]) -> None:
        self._allowed_bytes = allowed_bytes
        self._sizes: dict[ModelRef, Size] = {}
        self._tokenizers: dict[ModelRef, Tokenizer] = {}

    def fit(self, target: ModelRef, draft: ModelRef | None, request: Request, rows: int = 1) -> Fit:
        """What of these fits beside *request*. Raises ModelNotLoadable, ModelTooLarge or TextTooLarge."""
        size, draft_size = self._size(target), None if draft is None else self._size(draft)
        asked = Asked(
            target=size,
            tokens=size.context_tokens,
            draft=draft_size,
            draft_tokens=0 if draft_size is None else draft_size.context_tokens,
            rows=rows,
        )
        allowed_bytes = self._allowed_bytes()
        if asked.needed_bytes() <= allowed_bytes:
            return Fit(asked=asked)
        tokens, draft_tokens = self._tokens(target, draft, request)
        return fit(dataclasses.replace(asked, tokens=tokens, draft_tokens=draft_tokens), allowed_bytes)

    def _size(self, ref: ModelRef) -> Size:
        if ref not in self._sizes:
            self._sizes[ref] = size_of(ref)
        return self._sizes[ref]

    def _tokens(self, target: ModelRef, draft: ModelRef | None, request: Request) -> tuple[int, int]:
        """How many tokens *request* and its answer may have: the target's, and the draft's, if its ratio holds."""
        prompt = self._prompt_tokens(target, request)
        prompt_by_draft = 0 if draft is None else self._prompt_tokens(draft, request)
        return prompt + request.max_tokens, prompt_by_draft + request.max_tokens * prompt_by_draft // prompt

    def _prompt_tokens(self, ref: ModelRef, request: Request) -> int:
        if ref not in self._tokenizers:
            self._tokenizers[ref] = load_tokenizer_of(ref)
        return len(prompt_of(self._tokenizers[ref], request))
