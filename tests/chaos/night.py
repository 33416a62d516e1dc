"""A home of its own with the shipped processes in it, to be killed, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from sqlalchemy import select

from db.connect import open_store
from db.records import Counts
from db.settings import load_settings
from db.status import AttemptOutcome, ResultState
from db.tables import attempts, results
from db.transactions import reading
from tests.worker.helpers import Process, until
from worker.blas import worker_environment

HERE = Path(__file__).parent
NOCKA = str(Path(sys.executable).with_name("nocka"))
#: The shipped model that answers the quickest, for answers of a few tokens.
SUBMIT = (
    "--target",
    "mini-draft",
    "--drafter",
    "off",
    "--max-tokens",
    "6",
    "--temperature",
    "0.7",
    "--seed",
    "7",
    "--raw",
)
FINISHED_WITHIN_S = 240.0


class Night:
    """Processes of one home; leaving it ends them all."""

    def __init__(self, home: Path, **environ: str) -> None:
        home.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NOCKA_")}
        self.environ: Mapping[str, str] = {**kept, "OPENBLAS_NUM_THREADS": "1", "NOCKA_HOME": str(home), **environ}
        self.home = home
        self.settings = load_settings(self.environ)
        self.store = open_store(self.settings)
        self._started: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        for process in reversed(self._started):
            process.end()
            if error is not None:
                print(f"--- {process.name}: {process.code}\n{process.output.read_text('utf-8')[-3_000:]}")
        self.store.close()

    def start(self, *command: str) -> Process:
        """Start Python with *command*."""
        output = self.home.parent / f"{self.home.name}-{len(self._started)}.log"
        python = [sys.executable, "-P", *command]
        self._started.append(Process(" ".join(command), python, output, worker_environment(self.environ)))
        return self._started[-1]

    def broker(self) -> Process:
        return self.start("-m", "worker.broker")

    def worker(self) -> Process:
        return self.start("-m", "worker")

    def nocka(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the CLI in a process of its own."""
        return subprocess.run(
            [NOCKA, *arguments], env=dict(self.environ), capture_output=True, text=True, check=False, timeout=120
        )

    def submit(self, texts: Sequence[str], *options: str) -> str:
        """Submit *texts* as items `item-0`, ...; the job's id."""
        lines = [json.dumps({"custom_id": f"item-{number}", "text": text}) for number, text in enumerate(texts)]
        path = self.home.parent / f"{self.home.name}.jsonl"
        path.write_text("\n".join(lines), "utf-8")
        done = self.nocka("submit", str(path), *SUBMIT, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip().splitlines()[-1]

    def counts(self, job_id: str) -> Counts:
        return self.store.job(job_id).counts

    def await_end(self, job_id: str, within_s: float = FINISHED_WITHIN_S) -> None:
        until(lambda: self.counts(job_id).ended == self.counts(job_id).total, within_s)

    def texts(self, job_id: str) -> dict[str, str | None]:
        """The stored answers."""
        return {each.custom_id: each.text for each in self.store.results(job_id) if each.state is ResultState.DONE}

    def outcomes(self, job_id: str) -> list[AttemptOutcome]:
        """Of every attempt at a result of the job."""
        with reading(self.store.engine) as connection:
            found = connection.scalars(
                select(attempts.c.outcome)
                .join(results, results.c.id == attempts.c.result_id)
                .where(results.c.job_id == job_id)
            )
            return [AttemptOutcome(outcome) for outcome in found]

    def attempts(self, job_id: str) -> int:
        """How many there were; asserts that each finished result was finished by its last one, and by no other."""
        with reading(self.store.engine) as connection:
            rows = connection.execute(
                select(attempts.c.result_id, attempts.c.outcome)
                .join(results, results.c.id == attempts.c.result_id)
                .where(results.c.job_id == job_id, results.c.state == ResultState.DONE)
                .order_by(attempts.c.result_id, attempts.c.fence)
            ).all()
        outcomes: dict[int, list[str]] = defaultdict(list)
        for row in rows:
            outcomes[row.result_id].append(AttemptOutcome(row.outcome))
        for found in outcomes.values():
            assert found[-1] == AttemptOutcome.DONE
            assert found.count(AttemptOutcome.DONE) == 1
        return len(rows)


def sentences(count: int) -> list[str]:
    """Prompts, no two alike."""
    words = ["noc", "dzień", "praca", "sen", "las", "rzeka", "droga", "most", "dom", "okno"]
    return [f"Zdanie {number}: {words[number % 10]} i {words[number // 10 % 10]}" for number in range(count)]
