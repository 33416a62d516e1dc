"""Wakes a worker: puts a job's id on RQ's one queue, by function name. The only module here that knows RQ.

What is queued can be lost without harm: the worker reads what there is to do from the store.
"""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue
from rq.serializers import JSONSerializer

from db.errors import BrokerError
from db.settings import ADVANCE, QUEUE, Settings

ANSWER_WITHIN_S = 3.0
#: RQ's own record of a wake-up says nothing that the store does not know better.
_RESULT_TTL_S, _FAILURE_TTL_S = 60, 3600
_WORKERS_KEY = "rq:workers"


def enqueue(settings: Settings, job_id: str) -> None:
    """Wake a worker for *job_id*. Raises BrokerError."""
    with _connected(settings) as connection:
        try:
            queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)
            queue.enqueue_call(
                ADVANCE, args=(job_id,), timeout=-1, result_ttl=_RESULT_TTL_S, failure_ttl=_FAILURE_TTL_S
            )
        except redis.RedisError as error:
            raise unreachable(settings, error) from error


def broker_version(settings: Settings) -> str:
    """Ask the broker for its name and version: `valkey 9.1.2`. Raises BrokerError."""
    with _connected(settings) as connection:
        try:
            info = connection.info("server")
        except redis.RedisError as error:
            raise unreachable(settings, error) from error
    version = info.get("valkey_version")
    return f"valkey {version}" if version else f"redis {info['redis_version']}"


def wakeups_queued(settings: Settings) -> int | None:
    """How many wake-ups wait in the broker; None where it cannot be asked."""
    with _connected(settings) as connection:
        try:
            return int(connection.llen(f"rq:queue:{QUEUE}"))
        except redis.RedisError:
            return None


def registered_workers(settings: Settings) -> list[str]:
    """Name the workers whose heartbeat the broker still holds, on any machine. Raises BrokerError.

    Reads two kinds of keys and changes none, unlike RQ's own registries.
    """
    with _connected(settings) as connection:
        try:
            keys = sorted(key.decode() for key in connection.smembers(_WORKERS_KEY))
            return [key.removeprefix("rq:worker:") for key in keys if connection.exists(key)]
        except redis.RedisError as error:
            raise unreachable(settings, error) from error


def _connected(settings: Settings) -> redis.Redis:
    return redis.Redis.from_url(
        settings.redis_url,
        socket_timeout=ANSWER_WITHIN_S,
        socket_connect_timeout=ANSWER_WITHIN_S,
        retry=Retry(NoBackoff(), 0),
    )


def unreachable(settings: Settings, error: Exception) -> BrokerError:
    """The error as a user should see it; the URL is left out, for it may hold a password."""
    if settings.embedded_broker:
        return BrokerError("the broker does not run", "Start it together with a worker: nocka up")
    return BrokerError(f"the broker at NOCKA_REDIS_URL cannot be reached: {error}", "Check the URL and that server.")
