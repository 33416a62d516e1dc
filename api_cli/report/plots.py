"""Which charts a job's figures make. Pure."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict

from api_cli.advice import BreakEvens, break_even
from api_cli.claims import short
from api_cli.evaluation import Evaluation, Summary, own_speed
from api_cli.report.charts import Axis, Row, Series, lines, points, rows
from api_cli.report.markup import Markup, join, percent, tag
from api_cli.statistics import rank_correlation
from db.specs import CellSpec, DrafterKind

#: Points of one chart; of more every n-th is drawn.
MOST_POINTS = 1_500
PAYS_ABOVE = "pays above, by"
_SHARE = Axis(title="acceptance", write=percent, least=0.0)
_SPEED = Axis(title="speed over plain decoding", write="{:.2f}×".format)


def plots(found: Evaluation, break_evens: BreakEvens) -> Markup:
    """Every chart that *found* has figures for, each with its heading and what it shows."""
    made = [
        *_acceptance_by_k(found, break_evens),
        *_speedups(found),
        *_against_break_even(found, break_evens),
        *_by_position(found),
        *_over_the_job(found),
        *_quality(found),
        *_energy(found),
    ]
    return tag("div", *made, class_="plots")


def _plot(heading: str, caption: str, *chart: Markup) -> Markup:
    return tag("figure", tag("h3", heading), *chart, tag("figcaption", caption))


def _drafted(found: Evaluation) -> list[Summary]:
    return [one for one in found.overall if one.acceptance is not None]


def _line_of(cell: CellSpec) -> tuple[str, str]:
    """The chart (a draft, or the model-free drafters) and the line in it that *cell* is a point of."""
    how = " ".join(word for word in (cell.drafter.value, cell.translation.value if cell.translation else "") if word)
    line = how if cell.decoding.temperature == 0 else f"{how} t={cell.decoding.temperature:g}"
    return (f"draft {short(cell.draft)}" if cell.draft else "without a draft model"), line


def _acceptance_by_k(found: Evaluation, known: BreakEvens) -> list[Markup]:
    caption = "Accepted over proposed tokens, all texts together."
    pays = " What pays is by this machine's calibration."
    return [
        _plot(f"Acceptance by k: {chart}", caption + (pays if PAYS_ABOVE in drawn else ""), drawn)
        for chart, drawn in acceptance_by_k(found, known).items()
    ]


def acceptance_by_k(found: Evaluation, known: BreakEvens) -> dict[str, Markup]:
    """A chart for each draft, and one for the drafters without a model: a line for each drafter and translation."""
    charts: dict[str, dict[str, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    drafted = [one for one in _drafted(found) if found.cell(one).k]
    for one in drafted:
        chart, line = _line_of(found.cell(one))
        charts[chart][line].setdefault(float(found.cell(one).k), one.acceptance or 0.0)
    for cell in map(found.cell, drafted):
        even = break_even(cell, known)
        if even is not None and even <= 1:
            charts[_line_of(cell)[0]][f"{PAYS_ABOVE} {cell.drafter.value}"][float(cell.k)] = even
    most = max((share for drawn in charts.values() for line in drawn.values() for share in line.values()), default=0.0)
    up = Axis(title="acceptance", write=percent, least=0.0, most=most)
    along = Axis(title="k, tokens drafted in a round")
    return {
        chart: lines([Series(name=name, points=tuple(sorted(line.items()))) for name, line in drawn.items()], along, up)
        for chart, drawn in charts.items()
    }


def _speedups(found: Evaluation) -> list[Markup]:
    drawn = [
        Row(label=one.label, value=one.speedup.median, low=one.speedup.low, high=one.speedup.high)
        for one in found.overall
        if one.speedup is not None
    ]
    caption = (
        "Tokens a second over plain decoding's, paired by item: the median, with its 95 % interval from 20 items on."
    )
    return [_plot("Speed-up", caption, rows(drawn, _SPEED, reference=1.0))] if drawn else []


def _against_break_even(found: Evaluation, known: BreakEvens) -> list[Markup]:
    heading = "Acceptance against break-even"
    drawn = [
        Row(label=one.label, value=one.acceptance or 0.0, mark=even if even <= 1 else None)
        for one in _drafted(found)
        if (even := break_even(found.cell(one), known)) is not None
    ]
    if not drawn:
        nothing = "No calibration of these models is stored, so what would pay here is unknown: run nocka calibrate."
        return [_plot(heading, nothing)] if _drafted(found) else []
    caption = "The line across a bar is the acceptance above which it pays, by calibration; without one it never does."
    shown, drafts = {row.label for row in drawn}, defaultdict(list)
    for one in _drafted(found):
        drafts[_line_of(found.cell(one))[0]].append(one.label)
    missing = [draft for draft, labels in drafts.items() if not shown & set(labels)]
    caption += f" Not measured here: {', '.join(missing)}." if missing else ""
    return [_plot(heading, caption, rows(drawn, _SHARE))]


def _by_position(found: Evaluation) -> list[Markup]:
    """One line for each draft and translation, at its longest k."""
    longest: dict[tuple[str, str], Summary] = {}
    for one in _drafted(found):
        place = _line_of(found.cell(one))
        if len(one.per_position) > 1 and (place not in longest or found.cell(one).k > found.cell(longest[place]).k):
            longest[place] = one
    charts: dict[str, list[Series]] = defaultdict(list)
    for (chart, line), one in longest.items():
        along = tuple((float(at), share) for at, share in enumerate(one.per_position, start=1))
        length = f" k={found.cell(one).k}" if found.cell(one).k else ""
        charts[chart].append(Series(name=line + length, points=along))
    return [
        _plot(
            f"Acceptance by position: {chart}",
            "Of the rounds that proposed a token there, the share in which it stood.",
            lines(drawn, Axis(title="position in the proposal"), _SHARE),
        )
        for chart, drawn in charts.items()
    ]


def _over_the_job(found: Evaluation) -> list[Markup]:
    timed = [
        (answer.result.finished_at, speed, _way(found.cells[answer.result.cell_position]))
        for answer in found.answers
        if answer.result.finished_at is not None and (speed := own_speed(answer.result))
    ]
    if len(timed) < 2:
        return []
    first: dt.datetime = min(time for time, _, _ in timed)
    timed = sorted(timed)[:: 1 + len(timed) // MOST_POINTS]
    hours = (timed[-1][0] - first).total_seconds() > 3 * 3_600
    unit_s = 3_600 if hours else 60
    series: dict[str, list[tuple[float, float]]] = {way: [] for way in ("plain", "with a draft", "several at once")}
    for time, speed, name in timed:
        series[name].append(((time - first).total_seconds() / unit_s, speed))
    drawn = [Series(name=name, points=tuple(found)) for name, found in series.items() if found]
    along = Axis(title="hours since the first answer" if hours else "minutes since the first answer")
    caption = "One point an answer. Plain decoding that slows down is the machine: heat, or other work."
    return [_plot("Tokens a second over the job", caption, points(drawn, along, Axis(title="tokens/s", least=0.0)))]


def _way(cell: CellSpec) -> str:
    if cell.drafter is not DrafterKind.OFF:
        return "with a draft"
    return "plain" if cell.batch == 1 else "several at once"


def _quality(found: Evaluation) -> list[Markup]:
    series: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for answer in found.answers:
        chrf = answer.result.scores.get("chrf")
        if chrf is not None and answer.acceptance is not None:
            series[answer.kind].append((answer.acceptance, chrf))
    everything = [pair for pairs in series.values() for pair in pairs]
    if len(everything) < 2:
        return []
    drawn = [Series(name=kind, points=tuple(pairs[:: 1 + len(pairs) // MOST_POINTS])) for kind, pairs in series.items()]
    correlation = rank_correlation(everything)
    said = "undefined" if correlation is None else f"{correlation:+.2f}"
    caption = (
        f"One point an answer under a draft. Spearman's rank correlation is {said} over {len(everything)} answers."
    )
    if any(short(cell.target).startswith("mini-") for cell in found.cells):
        caption += " Warning: the target is a mini model, whose text means nothing, and so does its chrF."
    along = Axis(title="acceptance", write=percent)
    return [_plot("chrF against acceptance", caption, points(drawn, along, Axis(title="chrF", least=0.0)))]


def _energy(found: Evaluation) -> list[Markup]:
    drawn = [
        Row(label=one.label, value=one.joules_per_token) for one in found.overall if one.joules_per_token is not None
    ]
    if not drawn:
        return []
    axis = Axis(title="joules a token", write="{:.2f}".format, least=0.0)
    return [_plot("Energy", "Mean over the answers whose energy was measured.", join([rows(drawn, axis)]))]
