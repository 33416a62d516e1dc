"""Figure 3: a draft with another tokenizer, beside Hugging Face's way and the byte-exact ideal."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.ideal import IdealDrafter
from bench.report import Cell, Check, Report
from bench.workloads import (
    MAX_REPEATED_SHARE,
    SAMPLED,
    WORKLOADS,
    Passage,
    Workload,
    answer,
    held_out,
    repeated_share,
)
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.model import Model
from worker.engine.values import Generation

if TYPE_CHECKING:
    from bench.hf_uag import HuggingFace

LENGTHS = (2, 4, 6)
OF_THE_IDEAL = 0.98
#: Another BLAS adds in another order. A near tie of the draft that it turns moves the end of a round, or of two.
NEAR_TIE_FORWARDS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is run."""

    passages: int
    max_tokens: int
    lengths: tuple[int, ...] = LENGTHS
    workloads: tuple[Workload, ...] = WORKLOADS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted:
    """Tokens that one passage took so many target forwards for."""

    tokens: int
    forwards: int


def report(target: Model, drafts: dict[str, Model], size: Size, assisted: bool = True) -> Report:
    """Each of *drafts* under *target*, for every workload and k; *assisted*: beside Hugging Face where it can run."""
    rows: dict[str, dict[str, Cell]] = {}
    for name, draft in drafts.items():
        for workload in size.workloads:
            theirs = _hugging_face(target, draft) if assisted and has_torch() and workload is not SAMPLED else None
            found = _rows(target, draft, workload, size, theirs)
            rows |= {f"{name} {workload.name} {label}": cells for label, cells in found.items()}
    notes = [
        "tokens of the target per forward of it; replay: the text's own next token in place of the argmax",
        f"texts that repeat more than {MAX_REPEATED_SHARE:.0%} of their 4-grams are left out of the averages",
    ]
    if assisted and not has_torch():
        notes.append("Hugging Face is left out: PyTorch is not installed (the `bench` extra)")
    return Report(
        figure=3,
        title=f"Another tokenizer: {size.passages} passages of {size.max_tokens} tokens",
        rows=rows,
        checks=_checks(rows),
        notes=tuple(notes),
        fixed=frozenset({"tokens", "equal to plain"}),
        near={"forwards": NEAR_TIE_FORWARDS, "ideal's forwards": NEAR_TIE_FORWARDS},
    )


def has_torch() -> bool:
    """Whether Hugging Face's side can run."""
    return importlib.util.find_spec("torch") is not None


def _rows(
    target: Model, draft: Model, workload: Workload, size: Size, theirs: HuggingFace | None
) -> dict[str, dict[str, Cell]]:
    """A row for each k."""
    passages = held_out(target.tokenizer, size.passages)
    plain = [answer(target, None, 0, passage, workload, size.max_tokens) for passage in passages]
    shares = [repeated_share(generation.tokens) for generation in plain]
    counted = [passage for passage, share in zip(passages, shares, strict=True) if share <= MAX_REPEATED_SHARE]
    rows = {}
    for k in size.lengths:
        cross, ideal = (
            [answer(target, drafter, k, passage, workload, size.max_tokens) for passage in passages]
            for drafter in (CrossDrafter(target.tokenizer, draft, "context"), IdealDrafter(target.tokenizer, draft))
        )
        kept = [passage in counted for passage in passages]
        ours, best = _pooled(map(count, cross), kept), _pooled(map(count, ideal), kept)
        cells: dict[str, Cell] = {
            "nocka": per_forward(ours),
            "ideal": per_forward(best),
            "of the ideal": _ratio(per_forward(ours), per_forward(best)),
        }
        if workload.replay:  # no arithmetic changes what is emitted, so that its counts are the same elsewhere
            cells |= {"tokens": ours.tokens, "forwards": ours.forwards, "ideal's forwards": best.forwards}
        if theirs is not None:
            found = _assisted(theirs, target, passages, workload, k, size.max_tokens)
            hugging_face = per_forward(_pooled(found, kept))
            cells |= {"Hugging Face": hugging_face, "times theirs": _ratio(per_forward(ours), hugging_face)}
        cells |= {
            "equal to plain": sum(_same(*pair) for pair in zip(plain, cross, strict=True)) / len(passages),
            "passages": len(counted),
            "left out": len(passages) - len(counted),
            "repeated": sum(shares) / len(shares),
        }
        rows[f"k={k}"] = cells
    return rows


def per_forward(counted: Counted) -> float | None:
    """Target tokens per target forward; None without any."""
    return counted.tokens / counted.forwards if counted.forwards else None


def count(generation: Generation) -> Counted:
    """The tokens and the target forwards of one generation with a drafter, an end of turn counted."""
    ended = generation.finish_reason == "stop"
    return Counted(tokens=len(generation.tokens) + ended, forwards=len(generation.metrics.rounds))


def _pooled(found: Iterable[Counted], kept: Sequence[bool]) -> Counted:
    chosen = [one for one, keep in zip(found, kept, strict=True) if keep]
    return Counted(tokens=sum(one.tokens for one in chosen), forwards=sum(one.forwards for one in chosen))


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours and theirs else None


def _same(plain: Generation, drafted: Generation) -> bool:
    return plain.tokens == drafted.tokens and plain.text == drafted.text


def _hugging_face(target: Model, draft: Model) -> HuggingFace:
    from bench.hf_uag import HuggingFace

    return HuggingFace(Path(target.ref.source), Path(draft.ref.source))


def _assisted(
    theirs: HuggingFace, target: Model, passages: Sequence[Passage], workload: Workload, k: int, max_tokens: int
) -> list[Counted]:
    found = []
    for passage in passages:
        request = passage.request(workload, target.tokenizer, max_tokens)
        prompt = target.tokenizer.raw(passage.prompt)
        saying = passage.ids(target.tokenizer, max_tokens) if workload.replay else None
        result = theirs.assisted(prompt, request.max_tokens, k, saying)
        found.append(Counted(tokens=len(result.tokens), forwards=result.forwards))
    return found


def _checks(rows: dict[str, dict[str, Cell]]) -> tuple[Check, ...]:
    """The three promises, each over its worst row."""

    def least(column: str) -> float | None:
        values = [cells[column] for cells in rows.values() if isinstance(cells.get(column), float)]
        return min(values) if values else None  # type: ignore[type-var, return-value]

    return (
        Check(claim="nocka / Hugging Face, tokens per forward, worst row", value=least("times theirs"), bound=1.0),
        Check(claim="nocka / ideal, tokens per forward, worst row", value=least("of the ideal"), bound=OF_THE_IDEAL),
        Check(claim="share of texts equal to plain, worst row", value=least("equal to plain"), bound=1.0),
    )
