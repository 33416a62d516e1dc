"""Charts of a job's report as an SVG file: `python scripts/plot.py JOB DRAFT... > docs/acceptance.svg`.

For each DRAFT, acceptance by k and translation, and what pays where that was calibrated.
"""

from __future__ import annotations

import sys

from api_cli.cli.report import break_evens
from api_cli.client import Client
from api_cli.evaluation import evaluate
from api_cli.report.charts import standalone
from api_cli.report.plots import acceptance_by_k


def main(job: str, *drafts: str) -> None:
    with Client.open() as client:
        record = client.status(job)
        found = evaluate(client.results(record.id), client.cells(record.id))
        known = break_evens(client, found)
    charts = acceptance_by_k(found, known)
    sys.stdout.write(standalone({f"draft {draft}": charts[f"draft {draft}"] for draft in drafts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
