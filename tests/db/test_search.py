"""A search finds what is there, on both databases, however it is spelled; nothing that is asked changes a thing."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from db.asking import ask
from db.connect import connect
from db.errors import InputError, StoreError
from db.folding import PASSAGE_CHARACTERS, fold, passages, snippet, terms, words
from db.records import Finished
from db.search import Hit, refresh, search
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec, Message, RejectedItem
from db.store import Store
from db.transactions import reading, writing

ROOT = Path(__file__).parents[2]


def found(store: Store, asked: str, **options: Any) -> list[tuple[str, str | None]]:
    hits = search(store.engine, asked, **options)
    return sorted((hit.custom_id, hit.cell_label) for hit in hits)


def submit(store: Store, **prompts: str) -> str:
    items = tuple(ItemSpec(custom_id=name, text=prompt) for name, prompt in prompts.items())
    cells = (CellSpec(target="target-0"),)
    return store.submit(JobSpec(kind=JobKind.GENERATION, name="próba", cells=cells, items=items))


def answer(store: Store, finished: Finished, written: str) -> None:
    claim = store.claim("mac/1")
    assert claim is not None
    assert store.finish(claim, dataclasses.replace(finished, text=written))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("lodz", ["a"]),
        ("ŁÓDŹ", ["a"]),
        ("zazolc gesla jazn", ["b"]),
        ("łodz kot", []),
        ("kot", ["c"]),
        ("kot*", ["b", "c"]),
        ('"ma kota"', ["b"]),
        ('"kota ma"', []),
        ('"ma kot"*', ["b", "c"]),
        ("e-mail", ["c"]),
        ("3.5", ["c"]),
        ("snake_case", ["c"]),
        ("OR", []),
        ("NEAR(a b)", []),
        ('" AND "', ["c"]),
        ("' OR 1=1 --", []),
    ],
)
def test_words_are_found_however_they_are_spelled(store: Store, asked: str, expected: list[str]) -> None:
    """Without case, accents or ł; no sign of either database's own language means anything."""
    submit(
        store,
        a="Miasto Łódź leży w środku.",
        b="Zażółć gęślą jaźń, Ala ma kota.",
        c="Ma kot e-mail? 3.5 snake_case: and",
    )
    assert [name for name, _ in found(store, asked)] == expected


def test_an_answer_is_found_once_it_is_there_and_by_its_cell(
    store: Store, job: Callable[..., JobSpec], finished: Finished
) -> None:
    """Also one that ends after an earlier search; of a job that is asked for."""
    first, second = submit(store, one="Pytanie", two="Pytanie inne"), store.submit(job(1, cell_count=2))
    assert found(store, "odpowiedź") == []
    answer(store, finished, "Odpowiedź pierwsza")
    assert found(store, "odpowiedz") == [("one", "plain")]
    answer(store, finished, "Odpowiedź druga")
    assert found(store, "odpowiedz") == [("one", "plain"), ("two", "plain")]
    answer(store, finished, "Odpowiedź trzecia")
    assert found(store, "odpowiedz", job_id=second) == [("item-0", "plain")]
    assert found(store, "odpowiedz", job_id=first, limit=1) in ([("one", "plain")], [("two", "plain")])
    assert refresh(store.engine) == 0


def test_a_result_that_failed_and_is_run_again_is_found_by_its_answer(store: Store, finished: Finished) -> None:
    """Nothing of the attempt before it is indexed, and nothing twice."""
    job_id = submit(store, one="Pytanie")
    claim = store.claim("mac/1")
    assert claim is not None and store.fail(claim, "broken", "zepsute")
    assert found(store, "zepsute") == []
    store.retry(job_id)
    answer(store, finished, "Naprawione")
    assert found(store, "naprawione") == found(store, "naprawione") == [("one", "plain")]


def test_what_is_deleted_is_not_found_and_what_comes_after_is(store: Store) -> None:
    """SQLite gives a row's number again; the index must not."""
    job_id = submit(store, gone="Tajemnica")
    assert found(store, "tajemnica") == [("gone", None)]
    with writing(store.engine) as connection:
        connection.execute(text("DELETE FROM jobs WHERE id = :id"), {"id": job_id})
    assert found(store, "tajemnica") == []
    submit(store, later="Coś innego")
    assert (found(store, "tajemnica"), found(store, "innego")) == ([], [("later", None)])


def test_conversations_are_found_and_rejected_inputs_do_no_harm(store: Store) -> None:
    """Every turn counts."""
    turns = (Message(role="system", content="Jesteś żabą."), Message(role="user", content="Kto kumka?"))
    store.submit(
        JobSpec(
            kind=JobKind.GENERATION,
            name="próba",
            cells=(CellSpec(target="target-0"),),
            items=(ItemSpec(custom_id="talk", messages=turns),),
            rejected=(RejectedItem(custom_id="bad", code="empty_prompt", message="nothing"),),
        )
    )
    assert found(store, "żaba kumka") == [("talk", None)]
    assert found(store, "nothing") == []


def test_a_long_text_is_found_to_its_last_word(store: Store) -> None:
    """Of a size and of words that no single index entry could hold on Postgres; the snippet is of the right place."""
    many = " ".join(f"słowo{number}" for number in range(100_000))
    submit(store, long=f"{many} {'x' * 3_000} koniec", other="koniecznie")
    [hit] = search(store.engine, "koniec")
    assert hit.custom_id == "long"
    assert ("koniec", True) in hit.snippet
    assert found(store, "slowo77777") == [("long", None)]


def test_a_snippet_marks_every_hit_in_the_texts_own_letters() -> None:
    """And says what was left out."""
    pieces = snippet("Przed. " * 60 + "Stąd do Łodzi, z łodzi do Krakowa. " + "Dalej. " * 60, terms("lodzi krak*"))
    assert [piece for piece, hit in pieces if hit] == ["Łodzi", "łodzi", "Krakowa"]
    whole = "".join(piece for piece, _ in pieces)
    assert whole.startswith("…Przed.") and whole.endswith("…") and 100 < len(whole) < 250


@given(st.text(max_size=60))
@settings(max_examples=50, deadline=None)
def test_every_word_of_a_text_begins_one_that_is_asked_for(written: str) -> None:
    """Folding twice changes nothing, and a text is found by each of its own words."""
    assert fold(fold(written)) == fold(written)
    for word in words(written):
        [term] = terms(f'"{word}"')
        assert any(term.begins(words(written), at) for at in range(len(words(written))))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["a" * 7_001, "b\n" * 500, "ł" * 21_000, " "]), max_size=12))
def test_passages_are_the_whole_text(parts: list[str]) -> None:
    """In order, each where it says, none too long."""
    written = "".join(parts)
    cut = list(passages(written))
    assert "".join(passage for _, passage in cut) == written
    assert all(written.startswith(passage, start) and len(passage) <= PASSAGE_CHARACTERS for start, passage in cut)


@pytest.mark.parametrize("asked", ["", "  ", "***", '""', "—"])
def test_a_search_for_no_word_is_refused(store: Store, asked: str) -> None:
    with pytest.raises(InputError, match="no word"):
        search(store.engine, asked)


def test_a_submit_pays_nothing_for_the_search(store: Store, job: Callable[..., JobSpec]) -> None:
    """What it writes is indexed by the search that comes after, in many transactions."""
    store.submit(job(300))
    with reading(store.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM passages")) == 0
    assert len(search(store.engine, "zazolc", limit=5_000)) == 300


def test_the_views_hold_what_the_store_says(store: Store, job: Callable[..., JobSpec], finished: Finished) -> None:
    """Counts, totals and answers, the same on both databases."""
    job_id = store.submit(job(2, cell_count=2, rejected=1))
    metrics = {**finished.metrics, "proposed": 8, "accepted": 2, "energy_j": 1.5}
    for _ in range(3):
        answer(store, dataclasses.replace(finished, metrics=metrics), "gęślą jaźń")
    record = store.job(job_id)
    [row] = rows(store, "SELECT job, done, failed, waiting, completion_tokens, busy_s FROM v_jobs")
    assert row == (job_id, 3, 2, 1, record.completion_tokens, record.busy_s)
    plain, drafted = rows(
        store,
        "SELECT label, done, accepted, acceptance_rate, tokens_per_s, energy_j, temperature FROM v_cells ORDER BY cell",
    )
    assert plain == ("plain", 2, 4, 0.25, 2.0, 3.0, 0.0)
    assert drafted[:4] == ("lookup k=1", 1, 2, 0.25)
    [one] = rows(
        store,
        "SELECT prompt, answer, accepted, energy_j FROM v_results WHERE cell = 1 AND state = 'done'",
    )
    assert one == ("Zażółć 0", "gęślą jaźń", 2, 1.5)


def test_a_conversation_is_one_prompt_in_a_view(store: Store) -> None:
    """Its turns in order."""
    turns = (Message(role="system", content="Raz"), Message(role="user", content="dwa"))
    cells, items = (CellSpec(target="t"),), (ItemSpec(custom_id="a", messages=turns),)
    store.submit(JobSpec(kind=JobKind.GENERATION, name="n", cells=cells, items=items))
    assert rows(store, "SELECT prompt FROM v_results") == [("Raz\ndwa",)]


@pytest.mark.parametrize("view", ["v_jobs", "v_cells", "v_results"])
def test_the_views_are_documented_column_by_column(store: Store, view: str) -> None:
    """In their order."""
    note = (ROOT / "docs" / "design" / "store.md").read_text(encoding="utf-8")
    section = note.split(f"### `{view}`", 1)[1].split("###", 1)[0]
    told = [
        name.strip("` ")
        for line in section.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    ]
    with ask(store.engine, f"SELECT * FROM {view}", 10) as table:
        assert list(table.columns) == told


def rows(store: Store, sql: str, limit_s: float = 20) -> list[tuple[Any, ...]]:
    with ask(store.engine, sql, limit_s) as table:
        return list(table.rows)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM jobs",
        "  -- SELECT\n/* WITH */ DROP TABLE jobs",
        "SELECT 1; DELETE FROM jobs",
        "SELECT 1; COMMIT; DELETE FROM jobs",
        "WITH gone AS (DELETE FROM jobs RETURNING id) SELECT * FROM gone",
        "WITH one AS (SELECT 1) DELETE FROM jobs",
        "WITH one AS (SELECT 1) INSERT INTO passage_words (rowid) SELECT 1",
        "EXPLAIN ANALYZE DELETE FROM jobs",
        "PRAGMA writable_schema = 1",
        "ATTACH '{folder}/other.db' AS other",
        "VACUUM INTO '{folder}/other.db'",
        "COPY jobs TO '{folder}/other.db'",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT id INTO copied FROM jobs",
        "SELECT load_extension('x')",
        "nonsense",
        "SELECT nothing FROM nowhere",
        "",
    ],
)
def test_a_query_changes_nothing(store: Store, job: Callable[..., JobSpec], tmp_path: Path, sql: str) -> None:
    """It is refused in words, and the store is as it was."""
    store.submit(job(2))
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(InputError):
        rows(store, sql.replace("{folder}", str(tmp_path)))
    assert rows(store, "SELECT count(*) FROM v_results") == [(2,)]
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_query_reads_a_full_text_index_and_like_with_percent(store: Store, job: Callable[..., JobSpec]) -> None:
    """What reads is let through."""
    store.submit(job(2))
    refresh(store.engine)
    assert rows(store, "SELECT count(*) FROM items WHERE text LIKE '%1'") == [(1,)]
    assert rows(store, "SELECT count(*) FROM passage_words") == [(2,)]
    if store.engine.dialect.name == "sqlite":
        assert rows(store, "SELECT count(*) FROM passage_words WHERE words MATCH 'zazolc'") == [(2,)]


def test_a_query_without_an_end_is_stopped(store: Store) -> None:
    """Also one that gives no row meanwhile."""
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    begun = time.monotonic()
    with pytest.raises(StoreError, match="stopped after"):
        rows(store, endless, 0.3)
    assert time.monotonic() - begun < 20


def test_two_searches_at_once_index_once(open_here: Callable[[], Store], job: Callable[..., JobSpec]) -> None:
    """A second connection meets nothing left to do."""
    one, two = open_here(), open_here()
    one.submit(job(3))
    assert (refresh(one.engine), refresh(two.engine)) == (3, 0)
    hits: list[Hit] = search(two.engine, "zazolc")
    assert len(hits) == 3


def test_a_file_with_odd_letters_in_its_path_can_be_asked(tmp_path: Path) -> None:
    """The path becomes a URI on the way."""
    path = tmp_path / "50% ?ł#.db"
    engine = connect(f"sqlite:///{path}")
    with writing(engine) as connection:
        connection.execute(text("CREATE TABLE t (a)"))
    with ask(engine, "SELECT count(*) FROM t", 5) as table:
        assert list(table.rows) == [(0,)]
    engine.dispose()
