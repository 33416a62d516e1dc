"""What a night needs: deaths, work counted over attempts, a schedule, and hashes of what an answer depends on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("worked_s", sa.Float(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("schedule", JSON, nullable=True))
    op.add_column("jobs", sa.Column("content_hash", sa.Text(), nullable=True))
    op.create_index(op.f("ix_jobs_content_hash"), "jobs", ["content_hash"], unique=False)

    op.add_column("items", sa.Column("content_hash", sa.Text(), nullable=True))
    op.create_index(op.f("ix_items_content_hash"), "items", ["content_hash"], unique=False)

    op.drop_index(op.f("ix_results_job_id_state_turn"), "results")
    deaths = sa.Column("deaths", sa.Integer(), nullable=False, server_default="0")
    reused_from = sa.Column("reused_from", sa.Text(), nullable=True)
    if op.get_bind().dialect.name == "sqlite":
        # Remade, so that they stand before the wide columns, which totals then need not read past.
        with op.batch_alter_table("results", recreate="always") as table:
            table.add_column(deaths, insert_after="attempts")
            table.add_column(reused_from, insert_after="error_code")
    else:
        op.add_column("results", deaths)
        op.add_column("results", reused_from)
    columns = ["job_id", "state", "deaths", "turn"]
    op.create_index(op.f("ix_results_job_id_state_deaths_turn"), "results", columns, unique=False)
    op.execute(
        "UPDATE jobs SET worked_s = (SELECT coalesce(sum(prefill_s + decode_s), 0) FROM results"
        " WHERE results.job_id = jobs.id)"
    )
