"""Results as files and as tables: JSONL in OpenAI's shape, CSV, Markdown, and the terminal's table."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table
from rich.text import Text

from api_cli.batch_format import result_line
from api_cli.cli.render import excerpt, factor, fit, json_text, number, percent, state_text, table, visible
from api_cli.comparison import AgainstPlain, CellSummary, against_plain, beside_plain, summaries
from db.parting import FIRST_OTHER_TOKEN, LOGIT_GAP, NEAR_TIE
from db.records import ResultRecord
from db.specs import CellSpec
from db.status import RESULT_ENDED, ResultState

CSV_COLUMNS = (
    "custom_id",
    "cell",
    "state",
    "text",
    "finish_reason",
    "error_code",
    "error_message",
    "reference",
    "prompt_tokens",
    "completion_tokens",
    "tokens_per_s",
    "acceptance_rate",
    "attempts",
    "same_as_plain",
    "speed_against_plain",
    FIRST_OTHER_TOKEN,
    LOGIT_GAP,
    NEAR_TIE,
)
_NARROW = 80


def jsonl(results: Iterable[ResultRecord], cells: Sequence[CellSpec]) -> Iterator[str]:
    """One line for each ended result, see `batch_format`; one that has not ended has no line yet."""
    for result in results:
        if result.state in RESULT_ENDED:
            yield json_text(result_line(result, cells[result.cell_position])) + "\n"


def csv_lines(results: Sequence[ResultRecord], cells: Sequence[CellSpec]) -> Iterator[str]:
    """A header and a row for each result, whatever its state."""
    beside = against_plain(results, cells)
    yield _csv_line(CSV_COLUMNS)
    for result in results:
        against = beside.get(result.id)
        parting = against.parting if against else None
        yield _csv_line(
            (
                result.custom_id,
                result.cell_label,
                result.state.value,
                result.text,
                result.finish_reason,
                result.error_code,
                result.error_message,
                result.item.reference if result.item else None,
                result.prompt_tokens,
                result.completion_tokens,
                result.tokens_per_s,
                result.acceptance_rate,
                result.attempts,
                against.same if against else None,
                against.speed if against else None,
                parting.token if parting else None,
                parting.gap if parting else None,
                parting.near_tie if parting else None,
            )
        )


def _csv_line(cells: Iterable[object]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(["" if cell is None else cell for cell in cells])
    return written.getvalue()


def markdown(results: Sequence[ResultRecord], cells: Sequence[CellSpec]) -> Iterator[str]:
    """A table with the whole texts, for reading."""
    beside = against_plain(results, cells)
    columns = ["item", *(["cell"] if len(cells) > 1 else []), "state", "tokens", "tok/s", "acceptance"]
    columns += [*(["against plain"] if beside else []), "text"]
    yield _markdown_row(columns)
    yield _markdown_row("---" for _ in columns)
    for result in results:
        row = [result.custom_id, *([result.cell_label] if len(cells) > 1 else []), result.state.value]
        row += _figures(result)
        row += [_standing(beside.get(result.id))] if beside else []
        yield _markdown_row([*row, _text_or_error(result)])


def _markdown_row(cells: Iterable[str]) -> str:
    escaped = (visible(cell).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;") for cell in cells)
    return "| " + " | ".join(cell.replace("\n", "<br>") for cell in escaped) + " |\n"


def results_table(results: Sequence[ResultRecord], cells: Sequence[CellSpec], width: int) -> Table:
    """One row a result; an item's name stands in its first row only. A narrow terminal gets fewer columns."""
    beside = against_plain(results, cells)
    wide = width >= _NARROW
    drafted = any(result.acceptance_rate is not None for result in results)
    chosen = {
        "item": True,
        "cell": len(cells) > 1,
        "state": wide,
        "tokens": wide,
        "tok/s": wide or not beside,
        "accepted": wide and drafted,
        "vs plain": bool(beside),
        "text": True,
    }
    made = table(*(heading for heading, shown in chosen.items() if shown))
    made.columns[0].max_width = 24 if wide else 14
    for column in made.columns:
        column.justify = "right" if column.header in ("tokens", "tok/s", "accepted") else "left"
    headings = [str(column.header) for column in made.columns]
    names = cell_names(cells)
    last = None
    for result in results:
        tokens, speed, accepted = _figures(result)
        values: dict[str, str | Text] = {
            "item": excerpt(result.custom_id) if result.custom_id != last else "",
            "cell": names[result.cell_position],
            "state": state_text(result.state),
            "tokens": tokens,
            "tok/s": speed,
            "accepted": accepted,
            "vs plain": _standing_text(beside.get(result.id)),
            "text": _shown_text(result, named=not wide),
        }
        last = result.custom_id
        made.add_row(*(values[heading] for heading in headings))
    return fit(made, width)


def cell_names(cells: Sequence[CellSpec]) -> list[str]:
    """A short name for each cell: its drafter where that tells them apart, else its number."""
    names = ["plain" if cell.label == "plain" else cell.drafter.value for cell in cells]
    return names if len(set(names)) == len(names) else [str(at) for at in range(1, len(cells) + 1)]


def _figures(result: ResultRecord) -> list[str]:
    return [number(result.completion_tokens), number(result.tokens_per_s, 1), percent(result.acceptance_rate)]


def _standing(against: AgainstPlain | None) -> str:
    """`= 1.21×`: the same text at 1.21 times the speed; `≈`: it parts at a near tie, `≠`: it is another."""
    if against is None:
        return ""
    sign = "=" if against.same else "≈" if against.parting is not None and against.parting.near_tie else "≠"
    return f"{sign} {factor(against.speed)}"


def _standing_text(against: AgainstPlain | None) -> Text:
    return Text(_standing(against), style="" if against is None or against.same else "red")


def _text_or_error(result: ResultRecord) -> str:
    if result.state is ResultState.DONE:
        return result.text or ""
    return f"{result.error_code}: {result.error_message}" if result.error_code else ""


def _shown_text(result: ResultRecord, *, named: bool) -> Text:
    """The answer, or the error in red; with the state before it where no column says it."""
    if result.state is ResultState.DONE:
        return Text(excerpt(result.text or ""))
    said = excerpt(_text_or_error(result))
    if named:
        said = f"{result.state.value} {said}".rstrip()
    return Text(said, style="red" if result.state is ResultState.FAILED else "dim")


def summary_lines(results: Sequence[ResultRecord], cells: Sequence[CellSpec]) -> list[str]:
    """What stands under the table: for each cell held against plain, how it did."""
    return [_summary_line(summary) for summary in summaries(results, cells) if summary.compared]


def _summary_line(summary: CellSummary) -> str:
    return (
        f"{summary.label}: same text as plain in {beside_plain(summary.compared, summary.same, summary.near_ties)}, "
        f"acceptance {percent(summary.acceptance_rate)}, {factor(summary.speed)} the speed of plain"
    )
