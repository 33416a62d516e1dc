"""THE LOOP: propose, verify, emit, observe."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx

from worker.engine.context import always
from worker.engine.drafters.base import MAX_PROPOSED, Chooses, Drafter, Remembers
from worker.engine.emit import Emitter
from worker.engine.errors import PromptNotUsable, PromptTooLong
from worker.engine.model import Model
from worker.engine.prefix import Opening, forgetful
from worker.engine.sampling import Sampler
from worker.engine.values import Choices, Generation, Metrics, Request, Round
from worker.engine.verify import verify


def never() -> bool:
    """The default for *interrupted*."""
    return False


class Decoder:
    """Generates with one target and at most one drafter. *config* describes both, for the result."""

    def __init__(self, target: Model, drafter: Drafter | None, k: int, config: dict[str, Any]) -> None:
        self._target = target
        self._drafter = drafter
        self._k = k
        self.config = config
        #: What is kept of prompts that were read.
        self.prefixes = forgetful(target)
        #: Why there is no draft although one was asked for; None where there is, or none was.
        self.off_reason: str | None = None
        #: Whether `recall` would help: its drafter learns from answers and has seen none.
        self.blank = isinstance(drafter, Remembers)

    def recall(self, texts: Iterable[str]) -> None:
        """Let the drafter learn from earlier answers of its cell, the oldest first. It never shows in the output."""
        self.blank = False
        if isinstance(self._drafter, Remembers):
            self._drafter.recall(self._target.tokenizer.encode(text) for text in texts)

    def generate(
        self,
        request: Request,
        *,
        interrupted: Callable[[], bool] = never,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        """Answer *request*. *interrupted* is asked between forwards; *on_text* gets text as soon as it is certain.

        Raises PromptTooLong or PromptNotUsable where this request cannot be answered.
        """
        prompt = prompt_ids(self._target, request)
        room = self._target.context_tokens - len(prompt)
        emitter = Emitter(self._target.tokenizer, min(request.max_tokens, room), request.stop)
        sampler = Sampler(request.sampling, request.custom_id, self._target.vocab_size)
        run = Run(self.prefixes.open(prompt[:-1]), prompt, sampler, emitter, interrupted, on_text)
        run.off_reason = self.off_reason
        mx.reset_peak_memory()
        drafter = self._drafter
        if drafter is not None and run.context.obstacle is not None:
            drafter, run.off_reason = None, f"the target: {run.context.obstacle}"
        if run.prefill(request, drafter):
            if drafter is None:
                run.plain()
            else:
                run.speculate(drafter, self._k)
                drafter.finish(run.tokens)
                self.blank = False
                if isinstance(drafter, Chooses):
                    run.choices = drafter.choices()
        self.prefixes.close(run.context)
        return run.generation()


def prompt_ids(target: Model, request: Request) -> list[int]:
    """*request*'s prompt in *target*'s tokens. Raises PromptTooLong or PromptNotUsable."""
    tokenizer = target.tokenizer
    prompt = tokenizer.conversation(request.turns or ()) if request.text is None else tokenizer.raw(request.text)
    if not prompt:
        raise PromptNotUsable("the prompt has no tokens")
    if len(prompt) >= target.context_tokens:
        raise PromptTooLong(
            f"the prompt has {len(prompt)} tokens and {target.ref.source} reads "
            f"{target.context_tokens}; shorten the text or split it"
        )
    return prompt


class Run:
    """The state of one generation: what is committed, what is emitted, and where the time went."""

    def __init__(
        self,
        opening: Opening,
        prompt: list[int],
        sampler: Sampler,
        emitter: Emitter,
        interrupted: Callable[[], bool],
        on_text: Callable[[str], None] | None,
    ) -> None:
        self.context = opening.context
        #: The prompt and every emitted token; the last one is not read yet.
        self.tokens = list(prompt)
        self.off_reason: str | None = None
        self._opening = opening
        self.choices: Choices | None = None
        self._prompt_tokens = len(prompt)
        self._sampler = sampler
        self._seen = sampler.seen(prompt)
        self._emitter = emitter
        self._interrupted = interrupted
        self._on_text = on_text
        self._rounds: list[Round] = []
        self._times = Times()
        self._started = time.perf_counter()
        self._decoding = self._started

    def prefill(self, request: Request, drafter: Drafter | None) -> bool:
        """Let the target and the drafter read the prompt; whether nothing interrupted."""
        going = self._opening.read(self._interrupted)
        if going and drafter is not None:
            drafter.start(request, self.tokens, self._sampler, self._interrupted)
            going = not self._interrupted()
        self._decoding = time.perf_counter()
        self._times.prefill_s = self._decoding - self._started
        return going

    def plain(self, stays: Callable[[], bool] = always) -> bool:
        """Decode without a drafter for as long as *stays* says; whether the answer goes on behind it."""
        for token in self.context.stream(self.tokens[-1], self._emitter.left, self._choose_next, stays):
            if not self._emit([token]) or self._interrupted():
                return False
        return True

    def speculate(self, drafter: Drafter, k: int) -> None:
        """Decode round by round: propose, read and draw in one forward, keep what stands, forget the rest."""
        going = True
        chooser = drafter if isinstance(drafter, Chooses) else None
        while going and not self._interrupted():
            started = time.perf_counter()
            draft = drafter.propose(self.tokens, k, min(self._emitter.left - 1, MAX_PROPOSED))
            drafted = time.perf_counter()
            if chooser is not None and not draft.draft_tokens:
                going = self.plain(lambda: chooser.stays(self.tokens))
                continue
            proposal = self._in_vocabulary(draft.tokens)
            logits = self.context.append(mx.concatenate([mx.array([self.tokens[-1]], dtype=mx.int32), proposal]))
            own = self._sampler.choose(logits, len(self.tokens), self._seen, proposal)
            mx.eval(own, proposal)
            kept = verify(proposal.tolist(), own.tolist())  # type: ignore[arg-type]
            self.context.rewind(len(self.tokens) + len(kept) - 1)
            self._rounds.append(Round(draft.draft_tokens, proposal.size, len(kept) - 1))
            self._times.draft_s += drafted - started - draft.translate_s
            self._times.translate_s += draft.translate_s
            self._times.verify_s += time.perf_counter() - drafted
            if self._seen is not None:
                self._seen = self._sampler.see(self._seen, mx.array(kept))
            going = self._emit(kept)

    def generation(self) -> Generation:
        """What came out, once it has ended."""
        now = time.perf_counter()
        first = self._times.first_token_at
        metrics = Metrics(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._opening.reused,
            completion_tokens=len(self._emitter.tokens),
            time_to_first_token_s=(first if first is not None else now) - self._started,
            prefill_s=self._times.prefill_s,
            decode_s=now - self._decoding,
            draft_s=self._times.draft_s,
            verify_s=self._times.verify_s,
            translate_s=self._times.translate_s,
            peak_memory_bytes=int(mx.get_peak_memory()),
            rounds=tuple(self._rounds),
            off_reason=self.off_reason,
            choices=self.choices,
        )
        return Generation(
            text=self._emitter.text,
            tokens=tuple(self._emitter.tokens),
            finish_reason=self._emitter.finish_reason or "interrupted",
            metrics=metrics,
        )

    def _in_vocabulary(self, ids: tuple[int, ...] | mx.array) -> mx.array:
        """*ids* up to the first that the target does not have; a drafter's error must not become a wrong read."""
        if isinstance(ids, mx.array):
            return ids.astype(mx.int32)
        size = self.context.model.vocab_size
        wrong = next((index for index, token_id in enumerate(ids) if not 0 <= token_id < size), len(ids))
        return mx.array(ids[:wrong], dtype=mx.int32)

    def _choose_next(self, logits: mx.array, position: int) -> mx.array:
        drawn = self._sampler.choose(logits, position, self._seen)
        if self._seen is not None:
            self._seen = self._sampler.see(self._seen, drawn)
        return drawn

    def _emit(self, kept: list[int]) -> bool:
        """Emit *kept* up to the end of the answer; whether it goes on."""
        if self._times.first_token_at is None:
            self._times.first_token_at = time.perf_counter()
        going = True
        for token in kept:
            self.tokens.append(token)
            going = self._emitter.push(token)
            if not going:
                break
        if self._on_text is not None and (fresh := self._emitter.release()):
            self._on_text(fresh)
        return going


@dataclasses.dataclass
class Times:
    """Where one generation's seconds went, while it runs."""

    prefill_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    translate_s: float = 0.0
    first_token_at: float | None = None
