"""Figure 4: what the two tokenizers alone cost. A perfect draft, seen only through the real `cross` drafter.

No network runs, so the figures are the same on every machine. Needs real tokenizers and sentences, which do not
ship here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
from transformers import PreTrainedTokenizerFast

from bench.perfect_draft import Reciter, reciting
from bench.report import Cell, Check, Report
from worker.engine.drafters.base import MAX_PROPOSED
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.sampling import Sampler
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Request, Sampling
from worker.engine.verify import verify

ELSEWHERE = Path(__file__).parents[2] / "shared"
SENTENCES = 200
#: Target tokens per target forward that a quick script with character offsets reaches.
QUICK_SCRIPT = {
    ("bielik-v3-apt4", 2): 4.18,
    ("bielik-v3-apt4", 4): 7.32,
    ("qwen2.5", 2): 3.21,
    ("qwen2.5", 4): 5.35,
}
MAX_EMPTY_SHARE = 0.001


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay:
    """What came of replaying sentences."""

    tokens: int
    forwards: int
    empty: int


def is_present() -> bool:
    """Whether the real tokenizers and the sentences lie beside the repository."""
    return (ELSEWHERE / "tokenizers").is_dir() and (ELSEWHERE / "data" / "en_pl_pairs.jsonl").is_file()


def real_tokenizer(name: str) -> Tokenizer:
    """One of the real tokenizers."""
    wrapped = PreTrainedTokenizerFast.from_pretrained(ELSEWHERE / "tokenizers" / name)
    return Tokenizer(wrapped, [wrapped.eos_token_id])


def sentences(count: int = SENTENCES) -> list[str]:
    """The first *count* Polish sentences of NTREX-128."""
    lines = (ELSEWHERE / "data" / "en_pl_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    return [row["pl"] for row in map(json.loads, lines) if "NTREX" in row["source"]][:count]


def report(count: int = SENTENCES) -> Report:
    """Replay *count* sentences with each draft at k = 2 and 4."""
    title = f"Oracle replay: a perfect draft through real tokenizers, {count} sentences, target bielik-v2"
    if not is_present():
        return Report(figure=4, title=title, rows={}, notes=("the real tokenizers are not here",))
    target, texts = real_tokenizer("bielik-v2"), sentences(count)
    rows: dict[str, dict[str, Cell]] = {}
    checks = []
    for name in ("bielik-v3-apt4", "qwen2.5"):
        draft = real_tokenizer(name)
        for k in (2, 4):
            found = replay(target, draft, texts, k)
            label, bound = f"{name}, k = {k}", QUICK_SCRIPT[name, k]
            per_forward, empty = found.tokens / found.forwards, found.empty / found.forwards
            rows[label] = {
                "tokens per forward": per_forward,
                "quick script": bound,
                "empty proposals": empty,
                "forwards": found.forwards,
            }
            if count == SENTENCES:
                checks.append(Check(claim=f"{label}: target tokens per target forward", value=per_forward, bound=bound))
            checks.append(Check(claim=f"{label}: empty proposals", value=empty, bound=MAX_EMPTY_SHARE, at_least=False))
    return Report(
        figure=4,
        title=title,
        rows=rows,
        checks=tuple(checks),
        fixed=frozenset({"tokens per forward", "empty proposals", "forwards"}),
    )


def proposed(drafter: CrossDrafter, tokens: Sequence[int], k: int) -> list[int]:
    """What *drafter* proposes behind *tokens*, without a limit of its own."""
    found = drafter.propose(tokens, k, MAX_PROPOSED).tokens
    assert not isinstance(found, mx.array)
    return list(found)


def replay(target: Tokenizer, draft: Tokenizer, texts: list[str], k: int) -> Replay:
    """Replay *texts*; one that *draft* cannot spell (a normalising tokenizer) is left out.

    Every forward gives what it accepts and one token more, also where the sentence ends, as if the text went on.
    """
    tokens = forwards = empty = 0
    reciter = Reciter(draft)
    drafter = CrossDrafter(target, reciting(draft, reciter), "context")
    for text in texts:
        truth = target.encode(text)
        if not reciter.learn(target.spell(truth)):
            continue
        drafter.start(Request(custom_id="oracle", text=""), [], Sampler(Sampling(), "", len(target.table)), bool)
        done = 1
        while done < len(truth):
            proposal = proposed(drafter, truth[:done], k)
            own = truth[done : done + len(proposal) + 1]
            due = [*own, *[target.end_of_turn] * (len(proposal) + 1 - len(own))]
            kept = len(verify(proposal, due))
            done += kept
            tokens += kept
            forwards += 1
            empty += not proposal
    return Replay(tokens=tokens, forwards=forwards, empty=empty)
