"""A report's summary in words: what to run on this machine, and why. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from api_cli.claims import short
from api_cli.evaluation import Evaluation, Summary
from api_cli.statistics import MIN_FOR_INTERVAL, Estimate
from db.records import Counts
from db.specs import CellSpec, DrafterKind

#: What calibrations stored: target and draft -> drafter -> acceptance above which k = 1..8 pays.
BreakEvens = Mapping[tuple[str, str | None], Mapping[str, Sequence[float]]]


def words(found: Evaluation, counts: Counts, break_evens: BreakEvens) -> list[str]:
    """Sentences in order of weight: progress, what to run, by kind of text, losslessness, what limits the answer."""
    said = []
    if counts.ended < counts.total:
        said.append(f"{counts.ended} of {counts.total} so far: the figures are of what has finished.")
    rivals = sorted(_rivals(found), key=_median, reverse=True)
    if not rivals:
        return [*said, "Nothing here can be compared with plain decoding yet."]
    best = rivals[0]
    other = "drafted" if all(found.cell(one).drafter is not DrafterKind.OFF for one in rivals) else "other"
    said.append(_what_to_run(best, rivals, other))
    said.append(_why(best, found.cell(best), break_even(found.cell(best), break_evens)))
    said += _what_would_pay(found, rivals, break_evens)
    said += _by_kind(found, best)
    compared, same = sum(one.compared for one in rivals), sum(one.same for one in rivals)
    if same < compared:
        near = sum(one.near_ties for one in rivals)
        said.append(
            f"{compared - same} of {compared} {other} answers are not plain decoding's own text "
            f"({near} near-tie, {compared - same - near} DIFFERENT); they are listed."
        )
    else:
        said.append(f"All {compared} {other} answers are plain decoding's own text.")
    if counts.failed:
        said.append(f"{counts.failed} of {counts.total} results failed; they are listed below and in no figure.")
    return [*said, *_how_many(found, best)]


def break_even(cell: CellSpec, known: BreakEvens) -> float | None:
    """The acceptance above which *cell* pays here, where a calibration says; above 1 it never does."""
    # A drafter without a model costs the same whatever draft was measured beside it.
    measured = [
        evens for (target, draft), evens in known.items() if target == cell.target and cell.draft in (None, draft)
    ]
    evens = next((one[cell.drafter.value] for one in measured if cell.drafter.value in one), None)
    return evens[cell.k - 1] if evens is not None and 1 <= cell.k <= len(evens) else None


def speed_text(speed: Estimate | None) -> str:
    """`1.21× (1.18–1.25)`; the median alone where there is no interval."""
    if speed is None:
        return "–"
    return f"{speed.median:.2f}×" + ("" if speed.low is None else f" ({speed.low:.2f}–{speed.high:.2f})")


def _rivals(found: Evaluation) -> list[Summary]:
    return [one for one in found.overall if one.speedup is not None]


def _median(summary: Summary) -> float:
    return summary.speedup.median if summary.speedup else 0.0


def _pays(speed: Estimate) -> bool:
    """With an interval all of it is above 1; without one the median is."""
    return (speed.median if speed.low is None else speed.low) > 1


def _what_to_run(best: Summary, rivals: Sequence[Summary], other: str) -> str:
    speed = best.speedup
    assert speed is not None
    if _pays(speed):
        others = f", the best of {len(rivals)} {other} cells" if len(rivals) > 1 else ""
        return f"Run {best.label}: {speed_text(speed)} the speed of plain decoding over {speed.n} items{others}."
    if speed.median > 1:
        return (
            f"Run plain: the best {other} cell, {best.label}, reaches {speed_text(speed)}, which may be no gain at all."
        )
    return f"Run plain: no {other} cell is faster here. The nearest, {best.label}, reaches {speed_text(speed)}."


def _why(best: Summary, cell: CellSpec, even: float | None) -> str:
    if cell.drafter is DrafterKind.OFF:
        return "It drafts nothing: several answers share each reading of the weights."
    if best.acceptance is None:
        return "It proposed nothing."
    stands = f"{100 * best.acceptance:.0f} % of its proposed tokens stand"
    return f"{stands}." if even is None else f"{stands}, {_beside(best.acceptance, even)}."


def _beside(acceptance: float, even: float) -> str:
    if even > 1:
        return "and by this machine's calibration no acceptance would pay at this k"
    side = "above" if acceptance > even else "below"
    return f"{side} the {100 * even:.0f} % that must be reached to pay by this machine's calibration"


def _what_would_pay(found: Evaluation, rivals: Sequence[Summary], known: BreakEvens) -> list[str]:
    """What a calibration says of the fastest cell of each draft, the first of *rivals* left out; which have none."""
    said, unmeasured = [], []
    by_draft: dict[tuple[str, str | None], list[Summary]] = defaultdict(list)
    for one in (one for one in rivals if found.cell(one).drafter is not DrafterKind.OFF):
        by_draft[(found.cell(one).target, found.cell(one).draft)].append(one)
    for (target, draft), cells in by_draft.items():
        if not any(target == one and draft in (None, other) for one, other in known):
            unmeasured.append((target, draft))
        for one in cells:
            even = break_even(found.cell(one), known)
            if even is not None and one.acceptance is not None:
                stand = f"{100 * one.acceptance:.0f} % stand"
                said += [f"Of {one.label} {stand}, {_beside(one.acceptance, even)}."] if one is not rivals[0] else []
                break
    return [*said, *_not_measured(unmeasured)]


def _not_measured(pairs: Sequence[tuple[str, str | None]]) -> list[str]:
    if not pairs:
        return []
    names = _and([short(draft) if draft else "drafters without a model" for _, draft in pairs])
    target, draft = pairs[0]
    command = f"nocka calibrate --target {target}" + (f" --draft {draft}" if draft else "")
    measures = "measures it" if len(pairs) == 1 else "measures the first"
    return [f"What would pay with {names} was not measured here: `{command}` {measures}."]


def _how_many(found: Evaluation, best: Summary) -> list[str]:
    """What the number of items allows to say, over all texts and by kind."""
    if best.speedup is None:
        return []
    of_kind = [found.of_kind(best.position, kind) for kind in found.kinds] if found.by_kind else []
    counts = [one.speedup.n if one is not None and one.speedup is not None else 0 for one in of_kind]
    each = _and([f"{count} {kind}" for count, kind in zip(counts, found.kinds, strict=False)]) if counts else ""
    if len(set(counts)) == 1:
        each = f"{counts[0]} of each of {len(counts)} kinds"
    if best.speedup.n < MIN_FOR_INTERVAL:
        items = f"{best.speedup.n} items a cell" + (f" ({each})" if counts else "")
        return [f"With {items} there is no interval ({MIN_FOR_INTERVAL} are needed): take the speed-ups as hints."]
    if counts and min(counts) < MIN_FOR_INTERVAL:
        return [f"Single kinds of text have too few items for intervals ({each}; {MIN_FOR_INTERVAL} are needed)."]
    return []


def _and(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _by_kind(found: Evaluation, best: Summary) -> list[str]:
    """Where the answer differs by kind of text."""
    said = []
    paying = best.speedup is not None and _pays(best.speedup)
    for kind in found.kinds if found.by_kind else ():
        rivals = [one for one in found.by_kind if one.kind == kind and one.speedup is not None]
        if not rivals:
            continue
        first = max(rivals, key=_median)
        assert first.speedup is not None
        if _pays(first.speedup) and not paying:
            said.append(f"For {kind} texts alone, {first.label} pays: {speed_text(first.speedup)}.")
        elif paying and not _pays(first.speedup):
            said.append(f"For {kind} texts run plain: the best there is {first.label} at {speed_text(first.speedup)}.")
    return said
