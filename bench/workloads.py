"""What is generated: held-out Polish prose, replayed, continued greedily, or sampled."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from bench.replay import replayed
from worker.engine.decode import Decoder
from worker.engine.drafters.base import Drafter
from worker.engine.model import Model
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Generation, Request, Sampling

DATA = Path(__file__).parent / "data"
PROMPT_CHARS = 400
#: Texts that repeat themselves more than this say little about a draft: tiny models loop.
MAX_REPEATED_SHARE = 0.2
GRAM = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """How a passage is continued. A *replay* emits the passage itself, whatever the target would say."""

    name: str
    sampling: Sampling
    replay: bool = False


REPLAY = Workload(name="replay", sampling=Sampling(), replay=True)
GREEDY = Workload(name="greedy", sampling=Sampling())
SAMPLED = Workload(name="sampled", sampling=Sampling(temperature=0.7, seed=7))
WORKLOADS = (REPLAY, SAMPLED, GREEDY)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Passage:
    """A prompt, and the text that begins with it."""

    name: str
    prompt: str
    text: str

    def ids(self, tokenizer: Tokenizer, max_tokens: int) -> list[int]:
        """The prompt's ids and up to *max_tokens* of what follows."""
        return tokenizer.raw(self.text)[: len(tokenizer.raw(self.prompt)) + max_tokens]

    def request(self, workload: Workload, tokenizer: Tokenizer, max_tokens: int) -> Request:
        """This passage as a request; a replay ends where the text ends."""
        if workload.replay:
            max_tokens = len(self.ids(tokenizer, max_tokens)) - len(tokenizer.raw(self.prompt))
        return Request(custom_id=self.name, text=self.prompt, sampling=workload.sampling, max_tokens=max_tokens)


def held_out(tokenizer: Tokenizer, count: int) -> list[Passage]:
    """*count* passages of prose that the mini models were not trained on, cut where *tokenizer* cuts too."""
    lines = (DATA / "heldout.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    texts = [json.loads(line)["text"] for line in lines]
    return [passage(tokenizer, f"passage-{number}", text) for number, text in enumerate(texts, start=1)]


def passage(tokenizer: Tokenizer, name: str, text: str, prompt_chars: int = PROMPT_CHARS) -> Passage:
    """*text* with a prompt of at least *prompt_chars*: up to the next space at which its tokens may be cut in two."""
    whole = tokenizer.raw(text)
    cut = text.index(" ", prompt_chars)
    while tokenizer.raw(text[:cut]) != whole[: len(tokenizer.raw(text[:cut]))]:
        cut = text.index(" ", cut + 1)
    return Passage(name=name, prompt=text[:cut], text=text)


def answer(
    target: Model, drafter: Drafter | None, k: int, passage: Passage, workload: Workload, max_tokens: int
) -> Generation:
    """Continue *passage* with the engine."""
    if workload.replay:
        target = replayed(target, passage.ids(target.tokenizer, max_tokens))
    return Decoder(target, drafter, k, {}).generate(passage.request(workload, target.tokenizer, max_tokens))


def repeated_share(tokens: Sequence[int]) -> float:
    """The share of 4-grams that occurred before."""
    grams = [tuple(tokens[start : start + GRAM]) for start in range(len(tokens) - GRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
