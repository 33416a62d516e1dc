"""The queue of wake-ups. A lost or doubled one changes nothing: what there is to do is read from the store."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from rq import Queue
from rq.serializers import JSONSerializer

from db.settings import ADVANCE, QUEUE

#: Longer than any command blocks, so that a broker that hangs is noticed.
ANSWER_WITHIN_S = 10.0


def connect(url: str) -> redis.Redis:
    """A client that tries a dropped connection once again and leaves longer waits to its caller."""
    return redis.Redis.from_url(
        url, socket_timeout=ANSWER_WITHIN_S, socket_connect_timeout=ANSWER_WITHIN_S, retry=Retry(NoBackoff(), 1)
    )


class Wakeups:
    """What is queued. Every method raises `redis.RedisError` while the broker is away."""

    def __init__(self, connection: redis.Redis) -> None:
        self._queue = Queue(QUEUE, connection=connection, serializer=JSONSerializer)

    def ensure(self, job_id: str) -> None:
        """Queue a wake-up for *job_id* unless any is queued: whoever takes one does the most urgent work there is."""
        if self._queue.count == 0:
            self._queue.enqueue(ADVANCE, job_id, job_timeout=-1, result_ttl=0)
