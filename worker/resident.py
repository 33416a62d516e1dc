"""
The RQ worker: waits for wake-ups in the process that holds the models, and outlives its broker.

A `SimpleWorker`, since a fork would copy the process that holds the models. Of RQ it keeps the queue and the records of
who works, and nothing else: no scheduler, no timeouts by signal, no callbacks, no results, no commands over Redis. How
a wake-up ended is never recorded, for the store knows.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import redis
import structlog
from rq import Queue, SimpleWorker
from rq.exceptions import DeserializationError
from rq.executions import Execution
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty
from rq.utils import now
from rq.worker import WorkerStatus
from rq.worker_registration import register

from db.settings import ADVANCE, QUEUE
from worker.jobs.slice import Shift
from worker.wakeups import Wakeups, connect

#: How long Redis believes in a worker, an execution and its job without hearing from them.
LEASE_S = 90
BEAT_EVERY_S = 20.0
#: The longest a wake-up is waited for at a time, hence until a drain is noticed.
WAIT_S = 1
#: How often the store is asked for due work that no wake-up announced.
LOOK_EVERY_S = 5.0
JOB_KEY = Job.redis_job_namespace_prefix.encode()
RECONNECT_S = (0.5, 1.0, 2.0, 5.0)

log = structlog.get_logger("worker")


class NoDeathPenalty(BaseDeathPenalty):
    """Items may take hours, and RQ's way to end them is an exception between any two byte-codes."""

    def setup_death_penalty(self) -> None:
        """Set no alarm."""

    def cancel_death_penalty(self) -> None:
        """Cancel none."""


class SafeJob(Job):
    """A job that is a wake-up or nothing."""

    success_callback = failure_callback = stopped_callback = property(lambda self: None)

    def _execute(self) -> Any:
        reason = refusal(self)
        if reason is not None:
            raise PermissionError(reason)
        return super()._execute()

    def send_webhooks(self, *args: object, **kwargs: object) -> None:
        """Send none."""


def refusal(job: Job) -> str | None:
    """
    Why *job* must not run; None for a wake-up.

    JSON is no sandbox: RQ imports and calls whatever name stands in Redis.
    """
    try:
        name, instance, args, kwargs = job.func_name, job.instance, job.args, job.kwargs
    except DeserializationError:
        return "the payload is not RQ's JSON"
    if name != ADVANCE:
        return f"{str(name)[:80]!r} is no function of nocka's queue"
    one_string = isinstance(args, list) and len(args) == 1 and isinstance(args[0], str)
    if instance is not None or kwargs or not one_string:
        return "a wake-up takes one job id and nothing else"
    if job.origin != QUEUE:
        return f"it claims to come from queue {job.origin[:80]!r}"
    return None


class ResidentWorker(SimpleWorker):
    """Waits for wake-ups and runs each on the main thread, where the models live."""

    job_class = SafeJob
    death_penalty_class = NoDeathPenalty
    connection_timeout = 0  # the client's own

    def __init__(self, redis_url: str, shift: Shift) -> None:
        super().__init__(
            [QUEUE],
            name=shift.worker,
            connection=connect(redis_url),
            serializer=JSONSerializer,
            worker_ttl=LEASE_S - 60,  # RQ adds 60
            log_job_description=False,
        )
        self._shift = shift
        self._redis_url = redis_url
        self._queue: Queue = self.queues[0]
        self._wakeups = Wakeups(self.connection)
        self._look_at = 0.0

    def serve(self) -> None:
        """Work until the shift drains; while the broker is away, due work is taken from the store alone."""
        failures = 0
        while not self._shift.draining:
            try:
                self._arrive()
                failures = 0
                self._attend()
            except redis.RedisError as error:
                wait_s = RECONNECT_S[min(failures, len(RECONNECT_S) - 1)]
                log.warning("the broker is away", reason=type(error).__name__, next_try_s=wait_s)
                failures += 1
                self._shift.advance()
                self._nap(wait_s)
        self._leave()

    def _arrive(self) -> None:
        """Register in Redis and forget what workers that were killed left there."""
        self._forget_orphans()
        self.birth_date = now()
        self.heartbeat()
        self.set_state(WorkerStatus.IDLE)
        log.info("waiting for jobs", worker=self.name)

    def _attend(self) -> None:
        """Take wake-ups as they come, and look at the store now and then in case one was lost."""
        while not self._shift.draining:
            self.heartbeat()
            if time.monotonic() >= self._look_at:
                self._look_at = time.monotonic() + LOOK_EVERY_S
                self._shift.tell()
                job_id = self._shift.store.next_job()
                if job_id is not None:
                    self._wakeups.ensure(job_id)
            taken = self._next_wakeup()
            if taken is None:
                self._shift.rest()
            else:
                self.execute_job(taken, self._queue)

    def _next_wakeup(self) -> Job | None:
        """The next wake-up within a second, or None; one that cannot be read is removed."""
        taken = self.connection.blmove(self._queue.key, self._queue.intermediate_queue_key, WAIT_S)
        if taken is None:
            return None
        raw_id = cast(bytes, taken)
        try:
            return SafeJob.fetch(raw_id.decode("utf-8"), self.connection, self.serializer)
        except redis.RedisError:
            raise
        except Exception as error:  # RQ parses a dozen fields of whatever stands in Redis
            self._refuse(raw_id, f"its fields cannot be read ({type(error).__name__})")
            return None

    def execute_job(self, job: Job, queue: Queue) -> None:
        """Run one wake-up, or refuse it."""
        reason = refusal(job)
        if reason is not None:
            self._refuse(job.id.encode(), reason)
            return
        self.prepare_execution(job)
        self.perform_job(job, queue)
        self.set_state(WorkerStatus.IDLE)

    def perform_job(self, job: Job, queue: Queue) -> bool:
        """Run a wake-up under a lease that is renewed, and remove every trace of it."""
        self.prepare_job_execution(job, remove_from_intermediate_queue=True)
        with self._renewed_lease(job):
            job.perform()
        with self.connection.pipeline() as pipeline:
            self.cleanup_execution(job, pipeline)
            pipeline.delete(job.key)
            pipeline.execute()
        return True

    def get_heartbeat_ttl(self, job: Job) -> int:
        """Seconds; the lease, whatever the job's own timeout says."""
        return LEASE_S

    def heartbeat(self, timeout: int | None = None, pipeline: Any = None) -> None:
        """Renew everything that Redis holds about this worker: it may have been wiped since."""
        connection = pipeline if pipeline is not None else self.connection
        self.last_heartbeat = now()
        connection.hset(self.key, mapping=self.serialize())
        connection.expire(self.key, timeout or LEASE_S)
        register(self, pipeline)

    @contextlib.contextmanager
    def _renewed_lease(self, job: Job) -> Iterator[None]:
        """Beat on a thread and a connection of its own: the main thread is inside the model for minutes."""
        done = threading.Event()
        beats = threading.Thread(target=self._beat, args=(job, self.execution, done), name="heartbeat", daemon=True)
        beats.start()
        try:
            yield
        finally:
            done.set()
            beats.join(5)

    def _beat(self, job: Job, execution: Execution, done: threading.Event) -> None:
        with connect(self._redis_url) as connection:
            while not done.wait(BEAT_EVERY_S):
                with contextlib.suppress(redis.RedisError), connection.pipeline() as pipeline:
                    self.heartbeat(LEASE_S, pipeline)
                    execution.heartbeat(job.started_job_registry, LEASE_S, pipeline)
                    job.heartbeat(now(), LEASE_S, pipeline, xx=True)
                    pipeline.execute()

    def _refuse(self, raw_id: bytes, reason: str) -> None:
        """Remove a forged job without reading it any further: RQ's own ways out import what it names."""
        log.warning("refused a job that nocka did not queue", rq_job=repr(raw_id[:80]), reason=reason)
        with self.connection.pipeline() as pipeline:
            for key in (self._queue.intermediate_queue_key, self._queue.key):
                pipeline.lrem(key, 0, raw_id)  # type: ignore[arg-type]
            pipeline.delete(JOB_KEY + raw_id)
            pipeline.execute()

    def _forget_orphans(self) -> None:
        """
        Delete every started or half-taken wake-up.

        Under the lock nobody else here can be running one, and a worker on another machine loses only RQ's record of
        it. RQ's own clean-up would run callbacks and wait for minutes.
        """
        started = self._queue.started_job_registry.key
        taken = self._queue.intermediate_queue_key
        executions = cast(list[bytes], self.connection.zrange(started, 0, -1))
        ids = {execution.split(b":")[0] for execution in executions}
        ids |= set(cast(list[bytes], self.connection.lrange(taken, 0, -1)))
        with self.connection.pipeline() as pipeline:
            pipeline.delete(started, taken, *(JOB_KEY + each for each in ids))
            pipeline.execute()

    def _nap(self, seconds: float) -> None:
        """Sleep, but not through a request to drain."""
        ends_at = time.monotonic() + seconds
        while not self._shift.draining and time.monotonic() < ends_at:
            time.sleep(0.05)

    def _leave(self) -> None:
        with contextlib.suppress(redis.RedisError):
            self.register_death()  # type: ignore[no-untyped-call]

    def _set_ip_address(self, connection: redis.Redis) -> None:
        """Ask Redis nothing while the worker is made: it may be away."""
        self.ip_address = "unknown"
