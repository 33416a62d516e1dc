"""An undisturbed night to compare with, and the Postgres that `scripts/with_postgres.sh` starts."""

from __future__ import annotations

import os

import pytest

from tests.chaos.night import Night, sentences

ITEMS = 200
# Read before the environment is emptied for the tests.
POSTGRES_URL = os.environ.get("NOCKA_TEST_POSTGRES_URL")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """The answers to `sentences(200)` when nothing happens."""
    with Night(tmp_path_factory.mktemp("undisturbed") / "home") as night:
        night.broker()
        night.worker()
        job_id = night.submit(sentences(ITEMS))
        night.await_end(job_id)
        texts = night.texts(job_id)
    assert len(texts) == ITEMS
    return texts


@pytest.fixture
def postgres_url() -> str:
    if POSTGRES_URL is None:
        pytest.skip("no Postgres: on Debian, apt-get install postgresql and run `make chaos`")
    return POSTGRES_URL
