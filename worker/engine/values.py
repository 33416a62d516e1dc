"""Frozen values between the engine's modules. Strictly read-only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRef:
    """Which model, and how to hold it. `source` is a local folder or a Hugging Face repo id."""

    source: str
    revision: str | None = None
    #: `auto`, `stored`, `float32`, `bfloat16` or `float16`.
    dtype: str = "auto"
    #: Whether code of its own that its files bring along may be run.
    trusted: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drafting:
    """Who proposes: `off`, `neural`, `cross`, `lookup`, ..., with its model or file, its translation and its k."""

    drafter: str = "off"
    draft: ModelRef | None = None
    #: `direct`, `naive` or `context`; for `cross` only.
    translation: str | None = None
    #: Path of an n-gram file; for `ngram` and `staged` only.
    ngram: str | None = None
    #: Tokens a draft may propose in a round, counted in its own tokens.
    k: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the target's token is drawn. Temperature 0 is greedy; top_k 0, top_p 1, min_p 0 and penalty 1 are off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a conversation."""

    role: str
    content: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One generation. Exactly one of `turns` (rendered with the chat template) and `text` (continued raw) is set."""

    #: Part of the noise key: the same request gives the same text in any order, under any drafter.
    custom_id: str
    turns: tuple[Turn, ...] | None = None
    text: str | None = None
    sampling: Sampling = Sampling()
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Draft:
    """A proposal. `draft_tokens` were drafted for it, in the draft's own vocabulary."""

    #: In the target's vocabulary; an array (n,) where they are not computed yet.
    tokens: tuple[int, ...] | mx.array = ()
    draft_tokens: int = 0
    #: Seconds spent on the host between the two vocabularies.
    translate_s: float = 0.0
    #: For each of `tokens` the chance that it and all before it stand, where the drafter can tell.
    chances: tuple[float, ...] = ()

    @property
    def expected(self) -> float:
        """How many of `tokens` the drafter expects to stand; 0 where it cannot tell."""
        return sum(self.chances)


@dataclasses.dataclass(frozen=True)
class Round:
    """One draft-and-verify step: `draft_tokens` became `proposed` target tokens, of which `accepted` stand."""

    draft_tokens: int
    proposed: int
    accepted: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """One finished generation."""

    text: str
    #: Emitted target tokens; an end-of-turn token that ended it is not among them.
    tokens: tuple[int, ...]
    #: `stop`, `length` or `interrupted`.
    finish_reason: str
    metrics: Metrics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shared:
    """How a generation was decoded together with others."""

    #: How many rows its forwards had, on average.
    rows: float
    #: From its first forward to its last, the others' share counted.
    wall_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices:
    """What was chosen in a generation whose drafter chooses by itself, and why."""

    #: By choice (`plain`, `cross k=2`, `suffix`): its rounds, a plain token counted as one.
    rounds: Mapping[str, int]
    #: As `off: 31 % acceptance, needs 41 %`.
    reason: str

    def __str__(self) -> str:
        every = max(1, sum(self.rounds.values()))
        shares = (f"{choice} {100 * count / every:.0f} %" for choice, count in self.rounds.items())
        return f"{', '.join(shares)} ({self.reason})"

    def as_json(self) -> dict[str, Any]:
        every = sum(self.rounds.values())
        shares = {choice: round(count / every, 4) for choice, count in self.rounds.items()}
        return {"rounds": dict(self.rounds), "shares": shares, "reason": self.reason}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metrics:
    """The figures of one generation. Seconds are wall time; in a batch, each forward's time is shared by its rows."""

    prompt_tokens: int
    #: How many of them had been read for an earlier request of the cell.
    reused_tokens: int = 0
    completion_tokens: int
    #: From the request to the first emitted token, prefill included.
    time_to_first_token_s: float
    prefill_s: float
    #: After prefill, everything included.
    decode_s: float
    draft_s: float
    verify_s: float
    translate_s: float
    peak_memory_bytes: int
    rounds: Sequence[Round]
    #: Why speculation was off, or without its draft model, although asked for; None where it was as asked.
    off_reason: str | None = None
    #: None where nothing was chosen.
    choices: Choices | None = None
    #: None where it ran alone.
    batch: Shared | None = None
    #: What it took, in a batch its share; None where the machine does not tell.
    energy_j: float | None = None
    #: What the machine takes while the worker waits; None where that is not known.
    idle_w: float | None = None
    #: A Mac's thermal pressure at its end, and whether that saved power; None elsewhere.
    thermal: str | None = None
    low_power: bool | None = None

    @property
    def tokens_per_s(self) -> float:
        """Completion tokens after the first per second of decoding; 0 where nothing was decoded."""
        return (self.completion_tokens - 1) / self.decode_s if self.completion_tokens > 1 and self.decode_s > 0 else 0.0

    @property
    def joules_per_token(self) -> float | None:
        """Per completion token, the prompt's energy included; None where it is not known or there is none."""
        return None if self.energy_j is None or not self.completion_tokens else self.energy_j / self.completion_tokens

    @property
    def draft_tokens(self) -> int:
        return sum(step.draft_tokens for step in self.rounds)

    @property
    def proposed(self) -> int:
        return sum(step.proposed for step in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(step.accepted for step in self.rounds)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / proposed; None where nothing was proposed."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """1 + accepted / rounds, the bonus token counted; None without rounds."""
        return 1 + self.accepted / len(self.rounds) if self.rounds else None

    @property
    def accepted_per_position(self) -> list[int]:
        """How often the proposed token at each position of a round stood."""
        longest = max((step.accepted for step in self.rounds), default=0)
        return [sum(step.accepted > position for step in self.rounds) for position in range(longest)]

    def as_json(self) -> dict[str, Any]:
        """Everything, JSON-ready; the trace is one `[draft_tokens, proposed, accepted]` per round."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "reused_tokens": self.reused_tokens,
            "completion_tokens": self.completion_tokens,
            "time_to_first_token_s": self.time_to_first_token_s,
            "prefill_s": self.prefill_s,
            "decode_s": self.decode_s,
            "draft_s": self.draft_s,
            "verify_s": self.verify_s,
            "translate_s": self.translate_s,
            "tokens_per_s": self.tokens_per_s,
            "rounds": len(self.rounds),
            "draft_tokens": self.draft_tokens,
            "proposed": self.proposed,
            "accepted": self.accepted,
            "acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": self.mean_acceptance_length,
            "accepted_per_position": self.accepted_per_position,
            "trace": [[step.draft_tokens, step.proposed, step.accepted] for step in self.rounds],
            "peak_memory_bytes": self.peak_memory_bytes,
            "off_reason": self.off_reason,
            "energy_j": self.energy_j,
            "joules_per_token": self.joules_per_token,
            "idle_w": self.idle_w,
            "thermal": self.thermal,
            "low_power": self.low_power,
            "choices": None if self.choices is None else self.choices.as_json(),
            "batch": None if self.batch is None else dataclasses.asdict(self.batch),
        }
