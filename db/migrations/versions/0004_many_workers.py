"""Leases of workers, calibrations, scores of answers, where an item comes from, and whom to tell at the end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from db.tables import UtcDateTime

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "workers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("seen_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("lease_until", UtcDateTime(timezone=True), nullable=False),
        sa.Column("result_id", sa.Integer(), nullable=True),
        sa.Column("progress_at", UtcDateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_workers")),
    )
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("draft", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=False),
        sa.Column("measured_at", UtcDateTime(timezone=True), nullable=False),
        sa.Column("figures", JSON, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
        sa.UniqueConstraint("key", name=op.f("uq_calibrations_key")),
    )
    op.add_column("jobs", sa.Column("on_done", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("told_at", UtcDateTime(timezone=True), nullable=True))
    op.add_column("items", sa.Column("dataset", sa.Text(), nullable=True))
    op.add_column("items", sa.Column("content_kind", sa.Text(), nullable=True))
    op.add_column("results", sa.Column("scores", JSON, nullable=True))
