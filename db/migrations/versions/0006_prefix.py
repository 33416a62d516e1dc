"""How many tokens of a job's prompts were not read again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("reused_tokens", sa.Integer(), nullable=False, server_default="0"))
