"""Figure 7: two workers on one Postgres share a job, and one of them is killed."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from db.connect import connect
from tests.chaos.night import HERE, Night, sentences
from tests.worker.helpers import until

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
                until(lambda: first.counts(job_id).running == 2 and first.counts(job_id).done > 20)
                killed.kill()
                second.await_end(job_id)

                assert second.texts(job_id) == undisturbed
                attempts = second.attempts(job_id)
                workers = {each.machine for each in second.store.workers()}
        assert len(undisturbed) <= attempts <= len(undisturbed) + 1
        assert len(workers) == 1, "the dead one's row is removed"
        print(
            f"\nfigure 7: two workers on Postgres, one killed: {len(undisturbed)} results, each once, "
            f"{attempts} attempts"
        )
    finally:
        with owner.begin() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        owner.dispose()
