"""A report's summary in words: what to run on this machine, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    said.append(_what_to_run(best, rivals))
    said.append(_why(best, break_even(found.cell(best), break_evens)))
    said += _by_kind(found, best)
    compared, same = sum(one.compared for one in rivals), sum(one.same for one in rivals)
    if same < compared:
        near = sum(one.near_ties for one in rivals)
        said.append(
            f"{compared - same} of {compared} drafted answers are not plain decoding's own text: {near} part at a "
            f"near-tie, {compared - same - near} are DIFFERENT; they are listed."
        )
    else:
        said.append(f"All {compared} drafted answers are plain decoding's own text.")
    if counts.failed:
        said.append(f"{counts.failed} of {counts.total} results failed; they are listed below and in no figure.")
    if best.speedup and best.speedup.n < MIN_FOR_INTERVAL:
        said.append(
            f"With {best.speedup.n} items a cell there is no interval ({MIN_FOR_INTERVAL} are needed): "
            "take the speed-ups as hints."
        )
    return [line for line in said if line]


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
    return [one for one in found.overall if one.speedup is not None and found.cell(one).drafter is not DrafterKind.OFF]


def _median(summary: Summary) -> float:
    return summary.speedup.median if summary.speedup else 0.0


def _pays(speed: Estimate) -> bool:
    """With an interval all of it is above 1; without one the median is."""
    return (speed.median if speed.low is None else speed.low) > 1


def _what_to_run(best: Summary, rivals: Sequence[Summary]) -> str:
    speed = best.speedup
    assert speed is not None
    if _pays(speed):
        others = f", the best of {len(rivals)} drafted cells" if len(rivals) > 1 else ""
        return f"Run {best.label}: {speed_text(speed)} the speed of plain decoding over {speed.n} items{others}."
    if speed.median > 1:
        return (
            f"Run plain: the best drafted cell, {best.label}, reaches {speed_text(speed)}, which may be no gain at all."
        )
    return f"Run plain: no drafted cell is faster here. The nearest, {best.label}, reaches {speed_text(speed)}."


def _why(best: Summary, even: float | None) -> str:
    if best.acceptance is None:
        return "It proposed nothing."
    stands = f"{100 * best.acceptance:.0f} % of its proposed tokens stand"
    if even is None:
        return f"{stands}. What would pay was not measured here: `nocka calibrate` does."
    if even > 1:
        return f"{stands}; by this machine's calibration no acceptance would pay at this k."
    side = "above" if best.acceptance > even else "below"
    return f"{stands}, {side} the {100 * even:.0f} % that must be reached to pay by this machine's calibration."


def _by_kind(found: Evaluation, best: Summary) -> list[str]:
    """Where the answer differs by kind of text."""
    said = []
    paying = best.speedup is not None and _pays(best.speedup)
    for kind in found.kinds if found.by_kind else ():
        rivals = [
            one for one in found.by_kind if one.kind == kind and one.speedup is not None and one.acceptance is not None
        ]
        if not rivals:
            continue
        first = max(rivals, key=_median)
        assert first.speedup is not None
        if _pays(first.speedup) and not paying:
            said.append(f"For {kind} texts alone, {first.label} pays: {speed_text(first.speedup)}.")
        elif paying and not _pays(first.speedup):
            said.append(f"For {kind} texts run plain: the best there is {first.label} at {speed_text(first.speedup)}.")
    return said
