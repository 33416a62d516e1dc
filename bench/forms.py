"""Figure 6: what a memory of earlier answers gives on a batch of documents of one form.

`python -m bench.forms` writes the 40 documents anew; `make bench` reads them. Every complaint is invented.
"""

from __future__ import annotations

import json
import random
import time
import tomllib
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any

from bench.report import Cell, Check, Report
from bench.timing import speed
from bench.workloads import DATA, REPLAY, Passage, answer, passage, repeated_share
from worker.engine.drafters.suffix import SuffixDrafter
from worker.engine.model import Model
from worker.engine.sampling import Sampler
from worker.engine.values import Request, Sampling

PATH = DATA / "forms.jsonl"
DOCUMENTS = 40
MAX_IDENTICAL = 0.6
K = 16
PROMPT_CHARS = 30
REMEMBERED_TOKENS = 1_000_000
MIN_LENGTH, MIN_SPEED, MAX_PROPOSAL_S = 2.0, 1.3, 50e-6


def write() -> None:
    """Write the documents, the same ones every time."""
    draw = random.Random(17)
    parts = tomllib.loads((DATA / "form_parts.toml").read_text(encoding="utf-8"))
    documents: list[str] = []
    while len(documents) < DOCUMENTS:
        fresh = _document(parts, draw)
        if all(identical_share(fresh, earlier) <= MAX_IDENTICAL for earlier in documents):
            documents.append(fresh)
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in documents]
    PATH.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _document(parts: dict[str, Any], draw: random.Random) -> str:
    def one(kind: str) -> Any:
        return draw.choice(parts[kind])

    case = one("cases")
    story = " ".join(draw.sample(parts["causes"], draw.randint(3, 5)))
    return (
        f"Reklamacja nr {draw.randint(1000, 9999)}/2026, {one('names')}\n\n"
        "PROTOKÓŁ PRZYJĘCIA REKLAMACJI\n"
        f"Data przyjęcia zgłoszenia: {draw.randint(1, 28)} {one('months')} 2026 r., "
        f"godzina {draw.randint(8, 18)}.{draw.randint(10, 59)}\n"
        f"Adres do korespondencji: ul. {one('streets')} {draw.randint(1, 140)}, {one('towns')}\n"
        f"Przedmiot reklamacji: {case['thing']}, cena {draw.randint(39, 2900)} zł\n"
        f"Opis wady podany przez klienta: {case['thing']} {case['fault']}. {story}\n"
        f"Stan stwierdzony przy przyjęciu: {case['found']}.\n"
        f"Żądanie klienta: {one('wishes')}.\n"
        f"Sposób załatwienia: {one('outcomes')}\n"
        "Klient oświadcza, że podane wyżej dane są zgodne ze stanem faktycznym, i przyjmuje do wiadomości, że "
        "odpowiedź otrzyma w terminie czternastu dni.\n"
        f"Przyjmujący: {one('names')}"
    )


def texts() -> list[str]:
    """The documents."""
    return [json.loads(line)["text"] for line in PATH.read_text(encoding="utf-8").splitlines()]


def identical_share(first: str, second: str) -> float:
    """The share of words that two documents have in common, in the same order (2 x matching / all)."""
    pair = first.split(), second.split()
    return max(SequenceMatcher(None, *each, autojunk=False).ratio() for each in (pair, pair[::-1]))


def most_identical(documents: list[str]) -> float:
    """The largest such share of any two of *documents*."""
    return max(identical_share(first, second) for first, second in combinations(documents, 2))


def report(target: Model, documents: int = DOCUMENTS, timed: bool = True) -> Report:
    """Replay the first *documents* in turn with the memory of those before; *timed*: beside plain, each a pair."""
    batch = [passage(target.tokenizer, f"form-{number}", text, PROMPT_CHARS) for number, text in enumerate(texts())]
    drafter = SuffixDrafter()
    taken: dict[str, list[float]] = {"plain": [], "suffix": [], "again": []}
    tokens = rounds = same = 0
    shares = []
    sides = ("plain", "suffix", "again") if timed else ("suffix",)
    for index, form in enumerate(batch[:documents]):
        found = {}
        for side in sides if index % 2 else sides[::-1]:
            started = time.perf_counter()
            found[side] = answer(target, drafter if side == "suffix" else None, K, form, REPLAY, 1000)
            taken[side].append(time.perf_counter() - started)
        drafted = found["suffix"]
        tokens += len(drafted.tokens)
        rounds += len(drafted.metrics.rounds)
        begun = len(target.tokenizer.raw(form.prompt))
        same += form.ids(target.tokenizer, 1000)[begun:] == list(drafted.tokens)
        shares.append(repeated_share(drafted.tokens))
    faster = speed(taken["suffix"], taken["plain"]) if timed else None
    noise = speed(taken["plain"], taken["again"]) if timed else None
    proposal_s = proposal_seconds(batch, target) if timed else None
    identical = most_identical(texts())
    row: dict[str, Cell] = {
        "acceptance length": tokens / rounds,
        "documents": documents,
        "identical, most": identical,
        "the text itself": f"{same}/{documents}",
        "repeated": sum(shares) / len(shares),
        "times plain": None if faster is None else faster.ratio,
        "lower bound": None if faster is None else faster.lower,
        "A/A": None if noise is None else noise.ratio,
        "proposal at 1M, us": None if proposal_s is None else proposal_s * 1e6,
    }
    checks = (
        Check(
            claim="mean acceptance length", value=tokens / rounds if documents == DOCUMENTS else None, bound=MIN_LENGTH
        ),
        Check(claim="times plain, median", value=faster.ratio if faster else None, bound=MIN_SPEED),
        Check(claim="identical text, most of any two", value=identical, bound=MAX_IDENTICAL, at_least=False),
        Check(claim="seconds a proposal, median at 1M tokens", value=proposal_s, bound=MAX_PROPOSAL_S, at_least=False),
    )
    fixed = frozenset({"acceptance length", "documents", "identical, most", "the text itself", "repeated"})
    title = f"Memory of earlier answers on {documents} documents of one form, k = {K}"
    return Report(figure=6, title=title, rows={"suffix": row}, checks=checks, fixed=fixed)


def proposal_seconds(batch: list[Passage], target: Model) -> float:
    """Median seconds of thread CPU time of a proposal with a million remembered tokens, among them the forms'."""
    drafter = SuffixDrafter(REMEMBERED_TOKENS)
    draw = random.Random(3)
    forms = [target.tokenizer.raw(form.text) for form in batch]
    remembered = sum(map(len, forms))
    while remembered < REMEMBERED_TOKENS:
        # Pieces of the forms in a new order: much is found, as in a real batch, and matches are of every length.
        source = draw.choice(forms)
        start = draw.randrange(len(source))
        piece = source[start : start + draw.randint(2, 60)]
        drafter.recall([piece])
        remembered += len(piece) + 1
    drafter.recall(forms[1:])
    tokens = forms[0]
    begun = 20
    drafter.start(Request(custom_id="form", text="", max_tokens=1000), tokens[:begun], Sampler(Sampling(), "", 1), bool)
    found = []
    for length in range(begun + 1, len(tokens)):
        read = tokens[:length]
        started = time.thread_time()
        drafter.propose(read, K, K)
        found.append(time.thread_time() - started)
    return sorted(found)[len(found) // 2]


if __name__ == "__main__":
    write()
