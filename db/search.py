"""Full-text search over prompts and answers.

The index is brought up to date when somebody searches, not when something is written: a submit of 50,000 lines and a
worker's commit cost nothing more, and no answer is ever lost to an index. A prompt never changes, and an answer is
written once, so what is missing is what has no passage yet; rows end in any order, so a highest id would not tell.
Deleted rows take their passages along.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, exists, insert, select, text

from db.errors import InputError
from db.folding import PASSAGE_CHARACTERS, Term, passages, snippet, terms, words
from db.tables import cells, items, results
from db.tables import passages as passages_table
from db.transactions import reading, writing

#: Texts indexed in one transaction: a worker that wants to commit meanwhile waits for it.
BATCH = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hit:
    """A passage that holds what was looked for. Strictly read-only."""

    job_id: str
    custom_id: str
    #: Label of the cell that gave the answer; None where the prompt has it.
    cell_label: str | None
    #: The text around the first hit, in pieces: each with whether it is a hit.
    snippet: tuple[tuple[str, bool], ...]


def search(
    engine: Engine,
    asked: str,
    *,
    job_id: str | None = None,
    limit: int = 20,
    indexed: Callable[[int], None] = lambda count: None,
) -> list[Hit]:
    """The passages that hold every word of *asked*, the best first; long texts may be there more than once.

    `"..."` asks for words in a row, `begin*` for a word's beginning; case, accents and Polish letters mean nothing.
    *indexed* hears how many texts were new so far, after each `BATCH`. Raises InputError where *asked* holds no word.
    """
    wanted = terms(asked)
    if not wanted:
        raise InputError("there is no word to look for", 'For example: nocka search "Łódź"')
    refresh(engine, indexed)
    on_sqlite = engine.dialect.name == "sqlite"
    asking = {"asked": (_for_sqlite if on_sqlite else _for_postgres)(wanted), "job_id": job_id, "most": limit}
    statement = text((_FIND_SQLITE if on_sqlite else _FIND_POSTGRES).format(of_job=_OF_JOB if job_id else ""))
    with reading(engine) as connection:
        found = connection.execute(statement, asking if job_id else {**asking, "job_id": ""}).all()
        rows = {row.passage: row for row in connection.execute(_with_texts([row.id for row in found]))}
    return [_to_hit(rows[row.id], wanted) for row in found]


def refresh(engine: Engine, indexed: Callable[[int], None] = lambda count: None) -> int:
    """Index every text that is not yet; return how many. Two at once do not index twice."""
    count = 0
    for pending, text_of in _KINDS:
        last = 0
        while ids := _index_some(engine, pending(last), text_of):
            count, last = count + len(ids), ids[-1]
            indexed(count)
    return count


def _index_some(engine: Engine, pending: Select[Any], text_of: Callable[[Row[Any]], str]) -> list[int]:
    """Index the first of *pending* and return their ids; a search with nothing new asks nobody to wait."""
    with reading(engine) as connection:
        if connection.execute(pending.limit(1)).first() is None:
            return []
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("LOCK TABLE passages IN SHARE ROW EXCLUSIVE MODE"))
        rows = connection.execute(pending.limit(BATCH)).all()
        if rows:
            _write(connection, rows, text_of)
    return [row.id for row in rows]


def _prompts(last: int) -> Select[Any]:
    indexed = exists().where(passages_table.c.item_id == items.c.id, passages_table.c.result_id.is_(None))
    given = items.c.messages.is_not(None) | items.c.text.is_not(None)
    columns = (items.c.id, items.c.id.label("item_id"), items.c.messages, items.c.text)
    return select(*columns).where(items.c.id > last, given, ~indexed).order_by(items.c.id)


def _answers(last: int) -> Select[Any]:
    indexed = exists().where(passages_table.c.result_id == results.c.id)
    columns = (results.c.id, results.c.item_id, results.c.text, results.c.id.label("result_id"))
    return select(*columns).where(results.c.id > last, results.c.text.is_not(None), ~indexed).order_by(results.c.id)


def _prompt_text(row: Row[Any]) -> str:
    turns: str = "\n".join(turn["content"] for turn in row.messages or ())
    return turns if row.text is None else str(row.text)


#: What is pending of each kind of text, and the text of a row of it.
_KINDS = ((_prompts, _prompt_text), (_answers, lambda row: row.text))


def _write(connection: Connection, rows: Sequence[Row[Any]], text_of: Callable[[Row[Any]], str]) -> None:
    on_sqlite = connection.dialect.name == "sqlite"
    cut = [(row, start, words(passage)) for row in rows for start, passage in passages(text_of(row))]
    values = [
        {"item_id": row.item_id, "result_id": getattr(row, "result_id", None), "start": start} for row, start, _ in cut
    ]
    added = insert(passages_table).returning(passages_table.c.id, sort_by_parameter_order=True)
    indexed = [
        {"id": passage_id, "words": " ".join(found) if on_sqlite else _vector(found)}
        for passage_id, (_, _, found) in zip(connection.scalars(added, values), cut, strict=True)
    ]
    connection.execute(_INSERT_SQLITE if on_sqlite else _INSERT_POSTGRES, indexed)


_INSERT_SQLITE = text("INSERT INTO passage_words (rowid, words) VALUES (:id, :words)")
_INSERT_POSTGRES = text("INSERT INTO passage_words (rowid, words) VALUES (:id, CAST(:words AS tsvector))")


def _vector(found: Sequence[str]) -> str:
    """A tsvector written out, so that both databases hold the same words: its own parser cuts differently."""
    places: dict[str, list[str]] = {}
    for at, word in enumerate(found, start=1):
        places.setdefault(word, []).append(str(at))
    return " ".join(f"'{word}':{','.join(ats[:255])}" for word, ats in places.items())


def _for_sqlite(wanted: Sequence[Term]) -> str:
    return " AND ".join(f'"{" ".join(term.words)}"' + (" *" if term.prefix else "") for term in wanted)


def _for_postgres(wanted: Sequence[Term]) -> str:
    rows = [" <-> ".join(f"'{word}'" for word in term.words) + (":*" if term.prefix else "") for term in wanted]
    return " & ".join(f"({row})" for row in rows)


_OF_JOB = "JOIN items ON items.id = passages.item_id AND items.job_id = :job_id"
_FIND_SQLITE = """SELECT passages.id FROM passage_words
JOIN passages ON passages.id = passage_words.rowid {of_job}
WHERE passage_words MATCH :asked ORDER BY passage_words.rank, passages.id LIMIT :most"""
_FIND_POSTGRES = """SELECT passages.id FROM passage_words
JOIN passages ON passages.id = passage_words.rowid {of_job}
WHERE words @@ CAST(:asked AS tsquery)
ORDER BY ts_rank(words, CAST(:asked AS tsquery), 1) DESC, passages.id LIMIT :most"""


def _with_texts(ids: Sequence[int]) -> Select[Any]:
    return (
        select(
            passages_table.c.id.label("passage"),
            passages_table.c.start,
            passages_table.c.result_id,
            items.c.job_id,
            items.c.custom_id,
            items.c.messages,
            items.c.text,
            results.c.text.label("answer"),
            cells.c.label,
        )
        .join(items, items.c.id == passages_table.c.item_id)
        .outerjoin(results, results.c.id == passages_table.c.result_id)
        .outerjoin(cells, cells.c.id == results.c.cell_id)
        .where(passages_table.c.id.in_(ids))
    )


def _to_hit(row: Row[Any], wanted: list[Term]) -> Hit:
    whole = _prompt_text(row) if row.result_id is None else row.answer or ""
    passage = whole[row.start : row.start + PASSAGE_CHARACTERS]
    return Hit(
        job_id=row.job_id,
        custom_id=row.custom_id,
        cell_label=row.label,
        snippet=tuple(snippet(passage, wanted)),
    )
