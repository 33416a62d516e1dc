"""Several generations of one target at once: continuous batching over mlx_lm's BatchGenerator.

Each prompt is read alone, as outside a batch, and joins the others with its cache; then each forward gives every row
one token. A row draws with its own request's noise, so its text is the one it would have alone, near ties aside: a
product of several rows may round differently from a product of one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator

from worker.engine.decode import never, prompt_ids
from worker.engine.emit import Emitter
from worker.engine.errors import NotTogether, TextTooLarge
from worker.engine.memory import COPIES, gib
from worker.engine.model import Model
from worker.engine.prefix import forgetful
from worker.engine.sampling import Sampler
from worker.engine.values import Generation, Metrics, Request, Shared


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """Strictly read-only. A row that has ended: its answer, or the error that it alone met."""

    ticket: int
    outcome: Generation | Exception


class Batch:
    """Up to *size* requests decoded together. For one thread only, as MLX arrays are."""

    def __init__(self, target: Model, size: int, room_bytes: int, config: dict[str, Any]) -> None:
        """*room_bytes* is what the caches of all rows may take; the first is always admitted. Raises NotTogether."""
        unable = [type(layer).__name__ for layer in target.new_cache() if not hasattr(layer, "merge")]
        if unable:
            raise NotTogether(f"the {unable[0]} of a layer of {target.ref.source} cannot be batched")
        self.size = size
        #: Describes how the answers were made, for the result.
        self.config = config
        #: What is kept of prompts that were read.
        self.prefixes = forgetful(target)
        self._target = target
        self._room_bytes = room_bytes
        self._rows: dict[int, Row] = {}
        self._token_bytes = 0
        eos = [[token_id] for token_id in target.tokenizer.eos_ids]
        stream = mx.default_stream(mx.default_device())
        self._generator = BatchGenerator(
            target.network, stop_tokens=eos, completion_batch_size=size, prefill_batch_size=size, stream=stream
        )

    def __len__(self) -> int:
        return len(self._rows)

    def admits(self, request: Request) -> bool:
        """Whether one more request fits.

        Raises PromptTooLong, PromptNotUsable or TextTooLarge where none would ever answer it.
        """
        longest = self._length(request, prompt_ids(self._target, request))
        if not self._rows:
            if longest * self._token_bytes > self._room_bytes:
                raise TextTooLarge(
                    f"the cache of its {longest} tokens takes {gib(longest * self._token_bytes)}, and the weights "
                    f"leave {gib(self._room_bytes)} on this machine; shorten the text or lower max_tokens"
                )
            return True
        lengths = [longest, *(row.length for row in self._rows.values())]
        return len(lengths) <= rows_that_fit(max(lengths), self._token_bytes, self._room_bytes, self.size)

    def add(self, request: Request, interrupted: Callable[[], bool] = never) -> int | None:
        """Read *request*'s prompt and let it join: its ticket; None where *interrupted* said to stop.

        Raises PromptTooLong or PromptNotUsable.
        """
        prompt = prompt_ids(self._target, request)
        opening = self.prefixes.open(prompt[:-1])
        row = Row(self._target, request, prompt, self._length(request, prompt), opening.reused)
        context = opening.context
        if not opening.read(interrupted):
            return None
        if context.copyable:
            self.prefixes.close(context.copy())
        self._token_bytes = max(self._token_bytes, context.token_bytes)
        row.joined()
        [ticket] = self._generator.insert(
            [prompt[-1:]],
            [row.emitter.left],
            caches=[context.give_away()],
            all_tokens=[prompt[:-1]],
            samplers=[row.draws.sampler],
            logits_processors=[row.draws.processors],
        )
        self._rows[ticket] = row
        return int(ticket)

    def step(self) -> list[Ended]:
        """One token for every row; those that have ended, which are no longer in the batch."""
        if not self._rows:
            return []
        started = time.perf_counter()
        responses = self._generator.next()[1]
        share_s = (time.perf_counter() - started) / len(self._rows)
        for row in self._rows.values():
            row.shared(share_s, len(self._rows))
        ended = [self._take(response) for response in responses]
        return [one for one in ended if one is not None]

    def drop(self, ticket: int) -> None:
        """End a row without an answer."""
        if self._rows.pop(ticket, None) is not None:
            self._generator.remove([ticket])

    def close(self) -> None:
        """End all rows without an answer. Another batch of the same models may follow."""
        self._rows.clear()
        self._generator.close()

    def _take(self, response: Any) -> Ended | None:
        row = self._rows[response.uid]
        outcome: Generation | Exception
        try:
            if row.emit(int(response.token)) and response.finish_reason is None:
                return None
            outcome = row.generation()
        except Exception as error:  # one row never harms the others
            outcome = error
        del self._rows[response.uid]
        if response.finish_reason is None:
            self._generator.remove([response.uid])
        return Ended(ticket=response.uid, outcome=outcome)

    def _length(self, request: Request, prompt: Sequence[int]) -> int:
        """The most tokens that *request* may have in the cache."""
        return min(len(prompt) + request.max_tokens, self._target.context_tokens)


def rows_that_fit(length: int, token_bytes: int, room_bytes: int, most: int) -> int:
    """How many rows of *length* tokens fit into *room_bytes*, at most *most* and never less than one."""
    row_bytes = COPIES * length * token_bytes
    return most if row_bytes == 0 else max(1, min(most, room_bytes // row_bytes))


class Draws:
    """How one row draws its tokens: from its own logits, once for each forward."""

    def __init__(self, sampler: Sampler, prompt: list[int], greedy: bool) -> None:
        self._sampler = sampler
        self._seen = sampler.seen(prompt)
        self._position = len(prompt)
        self._drawn: mx.array | None = None
        # The generator draws all greedy rows with one argmax.
        plain = greedy and self._seen is None
        self.sampler = None if plain else self._sample
        self.processors = () if plain else (self._process,)

    def _process(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Draw here: what the sampler gets has been normalised, which rounds."""
        self._drawn = self._sampler.choose(logits, self._position, self._seen)
        self._position += 1
        if self._seen is not None:
            self._seen = self._sampler.see(self._seen, self._drawn)
        return logits

    def _sample(self, logprobs: mx.array) -> mx.array:
        assert self._drawn is not None
        return self._drawn


class Row:
    """The state of one generation in a batch."""

    def __init__(self, target: Model, request: Request, prompt: list[int], length: int, reused_tokens: int) -> None:
        sampler = Sampler(request.sampling, request.custom_id, target.vocab_size)
        self.emitter = Emitter(target.tokenizer, length - len(prompt), request.stop)
        self.draws = Draws(sampler, prompt, request.sampling.temperature == 0.0)
        #: The most tokens it may have in the cache.
        self.length = length
        self._prompt_tokens = len(prompt)
        self._reused_tokens = reused_tokens
        self._started = self._joined_at = time.perf_counter()
        self._first_at: float | None = None
        self._decode_s = 0.0
        self._rows = self._steps = 0

    def joined(self) -> None:
        """Its prompt is read."""
        self._joined_at = time.perf_counter()

    def shared(self, seconds: float, rows: int) -> None:
        """One forward with *rows* rows, of which this one's share took *seconds*."""
        self._decode_s += seconds
        self._rows += rows
        self._steps += 1

    def emit(self, token: int) -> bool:
        """Take one token; whether the answer goes on."""
        if self._first_at is None:
            self._first_at = time.perf_counter()
        return self.emitter.push(token)

    def generation(self) -> Generation:
        now = time.perf_counter()
        first = self._first_at if self._first_at is not None else now
        metrics = Metrics(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._reused_tokens,
            completion_tokens=len(self.emitter.tokens),
            time_to_first_token_s=first - self._started,
            prefill_s=self._joined_at - self._started,
            decode_s=self._decode_s,
            draft_s=0.0,
            verify_s=0.0,
            translate_s=0.0,
            peak_memory_bytes=int(mx.get_peak_memory()),
            rounds=(),
            batch=Shared(rows=self._rows / max(1, self._steps), wall_s=now - self._joined_at),
        )
        return Generation(
            text=self.emitter.text,
            tokens=tuple(self.emitter.tokens),
            finish_reason=self.emitter.finish_reason or "length",
            metrics=metrics,
        )
