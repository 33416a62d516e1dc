"""The report as one HTML file. Pure: a job's figures in, text out; the same figures give the same bytes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

from api_cli.advice import BreakEvens, break_even, speed_text, words
from api_cli.claims import claims
from api_cli.comparison import beside_plain
from api_cli.evaluation import Answer, Evaluation, Summary
from api_cli.published import BREAK_EVEN, SOURCE, Published, published
from api_cli.report.markup import Content, Markup, figure, join, percent, table, tag
from api_cli.report.plots import plots
from api_cli.report.style import STYLE
from api_cli.statistics import MIN_FOR_INTERVAL
from db.records import JobRecord, ResultRecord
from db.status import JOB_ENDED, ResultState

#: Rows of a list of items, and characters of an answer in it.
MOST_ROWS, MOST_CHARACTERS = 10, 300
#: What the page may load, to the browser: its own style and nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Material:
    """Strictly read-only. What a report is made from."""

    job: JobRecord
    found: Evaluation
    failed: tuple[ResultRecord, ...]
    break_evens: BreakEvens
    written_at: dt.datetime


def page(material: Material) -> str:
    """A whole HTML document that asks for nothing outside itself: no script, no font, no image, no link."""
    job, found = material.job, material.found
    body = [
        tag("h1", job.name),
        tag("p", _line(material), class_="dim"),
        tag("section", tag("h2", "Summary"), *_summary(material), class_="summary"),
        tag("section", tag("h2", "Cells"), _cells(material)),
        tag("section", tag("h2", "Pictures"), plots(found, material.break_evens)),
        *_kinds(found),
        *_claims(found),
        *_items(material),
        tag("section", tag("h2", "Configuration"), *_configuration(found)),
    ]
    head = join(
        [
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            tag("title", f"{job.name} · nocka"),
            tag("style", Markup(STYLE)),
        ]
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{join(body)}</main></body></html>\n'


def _line(material: Material) -> str:
    job = material.job
    counts = job.counts
    progress = f"{counts.ended} of {counts.total}"
    state = job.state.value if job.state in JOB_ENDED else f"{job.state.value}, {progress} so far"
    written = f"{material.written_at.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
    loads = "" if job.evaluation is None else f" · {job.evaluation.model_loads} model loads"
    done = f"{counts.done} of {counts.total} results done, {counts.failed} failed"
    return f"{job.id} · {state} · {done}{loads} · {written}"


def _summary(material: Material) -> list[Markup]:
    first, *others = words(material.found, material.job.counts, material.break_evens)
    return [tag("p", *_prose(first), class_="lead"), *(tag("p", *_prose(line)) for line in others)]


def _prose(line: str) -> list[Content]:
    """*line* with what stands between backticks as code."""
    return [tag("code", part) if at % 2 else part for at, part in enumerate(line.split("`"))]


def _cells(material: Material) -> Markup:
    found = material.found
    measured = any(break_even(found.cell(one), material.break_evens) is not None for one in found.overall)
    scorers = sorted({name for one in found.overall for name, _ in one.scores})
    headings = ["cell", "speed-up", "acceptance", "tokens/s", *(["break-even"] if measured else [])]
    headings += ["tokens a round", "plain's text", "done", *scorers]
    rows = []
    for one in found.overall:
        scores = dict(one.scores)
        even = break_even(found.cell(one), material.break_evens)
        row: list[Content] = [
            _name(one.label),
            speed_text(one.speedup),
            percent(one.acceptance),
            figure(one.tokens_per_s),
        ]
        row += [("never" if even > 1 else percent(even)) if even is not None else "–"] if measured else []
        row += [figure(one.acceptance_length, 2), _beside_plain(one)]
        row.append(f"{one.done} of {one.total}" + (f", {one.failed} failed" if one.failed else ""))
        rows.append([*row, *(figure(scores.get(name), 2) for name in scorers)])
    note = (
        "Speed-up: the median over the items of tokens a second over plain decoding's on the same item, with its 95 % "
        "bootstrap interval from 20 items on. Tokens a second: the median, after the first token."
    )
    return join([table(headings, rows), tag("p", note, class_="dim")])


def _beside_plain(one: Summary) -> str:
    return beside_plain(one.compared, one.same, one.near_ties) if one.compared else "–"


def _kinds(found: Evaluation) -> list[Markup]:
    """A row for each drafted cell, a column for each kind of text; what was published of it stands below."""
    drafted = [one for one in found.overall if any(_has_figures(kind) for kind in _of_kinds(found, one))]
    rows: list[list[Content]] = []
    is_published = False
    for one in drafted:
        row: list[Content] = [_name(one.label)]
        for kind, summary in zip(found.kinds, _of_kinds(found, one), strict=True):
            there = published(found.cell(one), kind)
            is_published = is_published or there is not None
            row.append(_of_kind(summary, there))
        rows.append(row)
    if not drafted or (len(found.kinds) < 2 and not is_published):
        return []
    said = f"Speed-up over plain decoding, and acceptance; in a cell {_items_of_kinds(found, drafted[0])}."
    if is_published:
        evens = ", ".join(f"k = {k}: {even}" for k, even in BREAK_EVEN.items())
        said += f" Below, what was published: {SOURCE}. Its break-even acceptance: {evens}."
    return [
        tag("section", tag("h2", "By kind of text"), table(["cell", *found.kinds], rows), tag("p", said, class_="dim"))
    ]


def _items_of_kinds(found: Evaluation, one: Summary) -> str:
    """`6 structured, 6 instruction and 6 question items`, those whose speed is known."""
    counts = [0 if kind is None or kind.speedup is None else kind.speedup.n for kind in _of_kinds(found, one)]
    *first, last = [f"{count} {kind}" for count, kind in zip(counts, found.kinds, strict=True)]
    few = "" if min(counts) >= MIN_FOR_INTERVAL else f", no interval below {MIN_FOR_INTERVAL}"
    return f"{', '.join(first)} and {last} items{few}" if first else f"{last} items{few}"


def _of_kinds(found: Evaluation, one: Summary) -> list[Summary | None]:
    """*one* over each kind of text; it is its own summary where there is one kind only."""
    return [found.of_kind(one.position, kind) for kind in found.kinds] if found.by_kind else [one]


def _has_figures(summary: Summary | None) -> bool:
    return summary is not None and summary.acceptance is not None


def _of_kind(summary: Summary | None, there: Published | None) -> Markup:
    if summary is None or (summary.speedup is None and summary.acceptance is None):
        return Markup("–")
    parts: list[Content] = [speed_text(summary.speedup), " · ", percent(summary.acceptance)]
    if there is not None:
        said = f"published {there.speedup or '–'} · {there.acceptance or '–'}"
        parts.append(tag("div", said, class_="dim"))
    return join(parts)


def _claims(found: Evaluation) -> list[Markup]:
    rows = [
        [claim.statement, tag("b", claim.verdict, class_="yes" if claim.holds else "no"), claim.evidence]
        for claim in claims(found)
    ]
    if not rows:
        return []
    note = f"Claims of {SOURCE}, checked on this job's models and machine."
    made = table(["claim", "here", "by"], rows, figures_from=9)
    return [tag("section", tag("h2", "The paper's claims"), made, tag("p", note, class_="dim"))]


def _items(material: Material) -> list[Markup]:
    """What failed, what differs from plain decoding, and what was slowest."""
    parts = []
    if material.failed:
        rows = [
            [one.custom_id, _name(one.cell_label), f"{one.error_code}: {one.error_message}"]
            for one in material.failed[:MOST_ROWS]
        ]
        parts += [tag("h2", _first("Failed", material.failed)), table(["item", "cell", "error"], rows, figures_from=9)]
    differing = [answer for answer in material.found.answers if answer.same is False]
    if differing:
        headings = ["item", "cell", "how", "answer"]
        made = table(headings, [_answer_row(one) for one in differing[:MOST_ROWS]], figures_from=9)
        parts += [tag("h2", _first("Not plain decoding's text", differing)), made]
    slowest = sorted(
        (one for one in material.found.answers if one.result.tokens_per_s), key=lambda one: -_seconds(one.result)
    )
    if slowest:
        slow = [
            [
                one.result.custom_id,
                _name(one.result.cell_label),
                f"{_seconds(one.result):.1f} s",
                figure(one.result.tokens_per_s),
                _cut(one),
            ]
            for one in slowest[:MOST_ROWS]
        ]
        headings = ["item", "cell", "took", "tokens/s", "answer"]
        parts += [tag("h2", "Slowest"), table(headings, slow, figures_from=9)]
    return [tag("section", *parts)] if parts else []


def _first(heading: str, found: Sequence[object]) -> str:
    return f"{heading}: {len(found)}" + (f", the first {MOST_ROWS}" if len(found) > MOST_ROWS else "")


def _answer_row(answer: Answer) -> list[Content]:
    how = "DIFFERENT" if answer.parting is None else str(answer.parting)
    return [answer.result.custom_id, _name(answer.result.cell_label), how, _cut(answer)]


def _cut(answer: Answer) -> Markup:
    written = answer.result.text or ""
    shown = written if len(written) <= MOST_CHARACTERS else f"{written[:MOST_CHARACTERS]}…"
    return tag("span", shown, class_="answer", dir="auto")


def _seconds(result: ResultRecord) -> float:
    return float(result.metrics.get("prefill_s") or 0) + float(result.metrics.get("decode_s") or 0)


def _configuration(found: Evaluation) -> list[Markup]:
    """Each cell's own, as it was asked for and as the worker ran it."""
    ran: dict[int, dict[str, Any]] = {}
    for answer in found.answers:
        if answer.result.state is ResultState.DONE:
            ran.setdefault(answer.result.cell_position, answer.result.config)
    parts = []
    for one in found.overall:
        asked = found.cell(one).model_dump(mode="json", exclude_none=True)
        both = {"asked": asked, "ran": ran.get(one.position, {})}
        written = json.dumps(both, ensure_ascii=False, indent=2, sort_keys=True, default=str)
        parts.append(tag("details", tag("summary", one.label), tag("pre", written)))
    return parts


def _name(label: str) -> Markup:
    return tag("span", label, class_="cell")


def csv_rows(found: Evaluation) -> list[list[object]]:
    """A heading and a row for each cell over all texts, then for each kind of text."""
    scorers = sorted({name for one in found.overall for name, _ in one.scores})
    headings = ["cell", "kind", "total", "done", "failed", "compared", "same_as_plain", "near_ties"]
    headings += ["tokens_per_s", "acceptance"]
    headings += [
        "acceptance_length",
        "speedup_items",
        "speedup_median",
        "speedup_low",
        "speedup_high",
        "joules_per_token",
    ]
    return [[*headings, *scorers], *(_csv_row(one, scorers) for one in (*found.overall, *found.by_kind))]


def _csv_row(one: Summary, scorers: Sequence[str]) -> list[object]:
    speed, scores = one.speedup, dict(one.scores)
    row: list[object] = [one.label, one.kind or "all", one.total, one.done, one.failed, one.compared, one.same]
    row.append(one.near_ties)
    row += [one.tokens_per_s, one.acceptance, one.acceptance_length]
    row += [speed.n, speed.median, speed.low, speed.high] if speed is not None else [0, None, None, None]
    return [*row, one.joules_per_token, *(scores.get(name) for name in scorers)]
