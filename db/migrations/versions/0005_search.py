"""Views to be asked by plain SQL, and what a full-text search keeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "passages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("item_id", sa.Integer(), nullable=False),
        sa.Column("result_id", sa.Integer(), nullable=True),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_passages_item_id_items"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["result_id"], ["results.id"], name=op.f("fk_passages_result_id_results"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passages")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_passages_item_id_result_id"), "passages", ["item_id", "result_id"])
    op.create_index(op.f("ix_passages_result_id"), "passages", ["result_id"])
    on_postgres = op.get_bind().dialect.name == "postgresql"
    for statement in _WORDS_POSTGRES if on_postgres else _WORDS_SQLITE:
        op.execute(statement)
    for view in (_V_JOBS, _V_CELLS, _V_RESULTS):
        written = _POSTGRES if on_postgres else _SQLITE
        for name, spelling in written.items():
            view = view.replace(f"<{name}>", spelling)
        op.execute(view)


# Without a copy of the texts: the words come folded already, and a snippet is cut from the text itself.
_WORDS_SQLITE = [
    "CREATE VIRTUAL TABLE passage_words USING fts5(words, content='', tokenize='unicode61 remove_diacritics 0')",
]
_WORDS_POSTGRES = [
    "CREATE TABLE passage_words (rowid INTEGER PRIMARY KEY REFERENCES passages (id) ON DELETE CASCADE,"
    " words TSVECTOR NOT NULL)",
    "CREATE INDEX ix_passage_words_words ON passage_words USING gin (words)",
]

# What the two databases spell differently.
_SQLITE = {
    "max_tokens": "json_extract(cells.spec, '$.decoding.max_tokens')",
    "temperature": "json_extract(cells.spec, '$.decoding.temperature')",
    "seed": "json_extract(cells.spec, '$.decoding.seed')",
    "proposed": "json_extract(results.metrics, '$.proposed')",
    "accepted": "json_extract(results.metrics, '$.accepted')",
    "energy_j": "json_extract(results.metrics, '$.energy_j')",
    "turns": "(SELECT group_concat(json_extract(turn.value, '$.content'), char(10))"
    " FROM json_each(items.messages) AS turn)",
}
_POSTGRES = {
    "max_tokens": "CAST(cells.spec #>> '{decoding,max_tokens}' AS INTEGER)",
    "temperature": "CAST(cells.spec #>> '{decoding,temperature}' AS DOUBLE PRECISION)",
    "seed": "CAST(cells.spec #>> '{decoding,seed}' AS BIGINT)",
    "proposed": "CAST(results.metrics ->> 'proposed' AS INTEGER)",
    "accepted": "CAST(results.metrics ->> 'accepted' AS INTEGER)",
    "energy_j": "CAST(results.metrics ->> 'energy_j' AS DOUBLE PRECISION)",
    "turns": "(SELECT string_agg(turn.value ->> 'content', chr(10) ORDER BY turn.at)"
    " FROM jsonb_array_elements(items.messages) WITH ORDINALITY AS turn (value, at))",
}

_COUNTS = """
    count(results.id) AS results,
    count(CASE WHEN results.state = 'waiting' THEN 1 END) AS waiting,
    count(CASE WHEN results.state = 'running' THEN 1 END) AS running,
    count(CASE WHEN results.state = 'done' THEN 1 END) AS done,
    count(CASE WHEN results.state = 'failed' THEN 1 END) AS failed,
    count(CASE WHEN results.state = 'cancelled' THEN 1 END) AS cancelled,
    count(CASE WHEN results.state = 'expired' THEN 1 END) AS expired,
    count(results.reused_from) AS reused,
    sum(CASE WHEN results.reused_from IS NULL THEN results.prompt_tokens END) AS prompt_tokens,
    sum(CASE WHEN results.reused_from IS NULL THEN results.completion_tokens END) AS completion_tokens,
    sum(CASE WHEN results.reused_from IS NULL THEN results.prefill_s + results.decode_s END) AS busy_s,
    1.0 * sum(CASE WHEN results.reused_from IS NULL THEN results.completion_tokens END)
        / nullif(sum(CASE WHEN results.reused_from IS NULL THEN results.prefill_s + results.decode_s END), 0)
        AS tokens_per_s"""

_V_JOBS = f"""CREATE VIEW v_jobs AS SELECT
    jobs.id AS job, jobs.name, jobs.kind, jobs.state, jobs.priority, jobs.created_at, jobs.started_at,
    jobs.finished_at,{_COUNTS},
    jobs.worked_s, jobs.error_code, jobs.error_message, jobs.nocka_version
FROM jobs LEFT JOIN results ON results.job_id = jobs.id
GROUP BY jobs.id"""

_V_CELLS = f"""CREATE VIEW v_cells AS SELECT
    cells.job_id AS job, cells.position AS cell, cells.label, cells.target, cells.draft, cells.drafter,
    cells.translation, cells.k, <max_tokens> AS max_tokens, <temperature> AS temperature, <seed> AS seed,{_COUNTS},
    sum(CASE WHEN results.reused_from IS NULL THEN results.rounds END) AS rounds,
    sum(CASE WHEN results.reused_from IS NULL THEN <proposed> END) AS proposed,
    sum(CASE WHEN results.reused_from IS NULL THEN <accepted> END) AS accepted,
    1.0 * sum(CASE WHEN results.reused_from IS NULL THEN <accepted> END)
        / nullif(sum(CASE WHEN results.reused_from IS NULL THEN <proposed> END), 0) AS acceptance_rate,
    sum(CASE WHEN results.reused_from IS NULL THEN <energy_j> END) AS energy_j
FROM cells LEFT JOIN results ON results.cell_id = cells.id
GROUP BY cells.id"""

_V_RESULTS = """CREATE VIEW v_results AS SELECT
    results.job_id AS job, jobs.name AS job_name, items.custom_id, cells.position AS cell, cells.label, cells.target,
    cells.draft, cells.drafter, cells.translation, cells.k, <temperature> AS temperature, results.state,
    results.attempts, coalesce(items.text, <turns>) AS prompt, items.reference, items.dataset, items.content_kind,
    results.text AS answer, results.finish_reason, results.error_code, results.error_message, results.reused_from,
    results.prompt_tokens, results.completion_tokens, results.tokens_per_s, results.prefill_s, results.decode_s,
    results.rounds, <proposed> AS proposed, <accepted> AS accepted, results.acceptance_rate,
    <energy_j> AS energy_j, results.worker, results.claimed_at, results.finished_at, results.scores,
    results.metrics, results.config
FROM results
JOIN jobs ON jobs.id = results.job_id
JOIN items ON items.id = results.item_id
JOIN cells ON cells.id = results.cell_id"""
