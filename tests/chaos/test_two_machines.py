"""Figure 7: two workers on one Postgres share a job, and one of them is killed."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path

import pytest
from sqlalchemy import make_url, select, text

from db.connect import connect
from db.status import ResultState
from db.tables import results
from db.transactions import reading
from tests.chaos.night import HERE, Night, sentences
from tests.worker.helpers import Process, until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def test_two_workers_on_postgres(tmp_path: Path, postgres_url: str, undisturbed: dict[str, str | None]) -> None:
    """Both take results of one job; one is killed for good, and past its lease the other has every answer once."""
    schema = f"nocka_chaos_{secrets.token_hex(4)}"
    owner = connect(postgres_url)
    with owner.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    url = make_url(postgres_url).update_query_dict({"options": f"-csearch_path={schema}"})
    shared = {"NOCKA_DATABASE_URL": url.render_as_string(hide_password=False), "CHAOS_LEASE_S": "5"}
    try:
        with Night(tmp_path / "broker") as redis_owner:
            redis_owner.broker()
            shared["NOCKA_REDIS_URL"] = redis_owner.settings.redis_url
            with Night(tmp_path / "first", **shared) as first, Night(tmp_path / "second", **shared) as second:
                until(redis_owner.settings.broker_socket.exists)
                killed = first.start(str(HERE / "chaos_worker.py"))
                second.start(str(HERE / "chaos_worker.py"))
                until(lambda: len(first.store.workers()) == 2)
                job_id = first.submit(sentences(len(undisturbed)))
                until(lambda: first.counts(job_id).done > 20)
                until(lambda: holds_when_stopped(killed, first))
                killed.kill()
                second.await_end(job_id)

                assert second.texts(job_id) == undisturbed
                attempts = second.attempts(job_id)
                workers = {each.machine for each in second.store.workers()}
        assert attempts == len(undisturbed) + 1
        assert len(workers) == 1, "the dead one's row is removed"
        print(
            f"\nfigure 7: two workers on Postgres, one killed: {len(undisturbed)} results, each once, "
            f"{attempts} attempts"
        )
    finally:
        with owner.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        owner.dispose()


def holds_when_stopped(process: Process, night: Night) -> bool:
    """Stop *process* unless it is between two results; whether it is stopped."""
    process.signal(signal.SIGSTOP)
    with reading(night.store.engine) as connection:
        held = connection.scalars(select(results.c.worker).where(results.c.state == ResultState.RUNNING)).all()
    if any(worker is not None and f"/{process.pid}-" in worker for worker in held):
        return True
    process.signal(signal.SIGCONT)
    return False
