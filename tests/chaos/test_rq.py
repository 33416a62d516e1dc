"""
Figure 5: the twenty-two ways in which RQ's own classes fail a worker that keeps a model for hours.

Each row is a test that RQ's stock `SimpleWorker` fails, run on both; or it names the test of ours that holds it where
RQ has nothing to compare; or it says why it cannot occur.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from rq import Queue, Retry, SimpleWorker
from rq.registry import StartedJobRegistry
from rq.serializers import JSONSerializer

from db.settings import ADVANCE, QUEUE
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from tests.chaos.night import Night
from tests.worker.echo import EchoModels
from tests.worker.helpers import until
from worker import resident
from worker.jobs import slice as job_slice
from worker.jobs.slice import Shift
from worker.resident import ResidentWorker
from worker.wakeups import Wakeups, connect

# By a signal it would be the very alarm of row 15.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(120, method="thread")]

TESTS = Path(__file__).parents[1]
BEAT_S = 0.1
BY_A_TEST = {
    5: "test_cancel_ends_the_running_item_and_the_waiting_ones",  # the stop is the store's, not RQ's command
    6: "test_cancel_ends_the_running_item_and_the_waiting_ones",
    7: "test_a_second_signal_ends_at_once",
    8: "test_a_signal_hands_the_running_item_back_uncharged",
    10: "test_kill_9_of_the_broker",
}
CANNOT_OCCUR = {
    11: "there is one queue, so that a wake-up is moved and never in nobody's hands; a lost one costs seconds",
    13: "nothing is left to RQ's maintenance: each arrival clears what was left, and the store is looked at every 5 s",
    14: "neither intervals nor RQ's scheduler are used: when a result is due is the store's to say",
    16: "no meta is used: progress and cancel are columns, changed under a fence in one transaction",
    17: "a wake-up carries no work: the second one finds nothing due",
    18: "`unique` is not used: a doubled submit is recognised in the store, whatever RQ still remembers",
    19: "no wake-up depends on another",
    20: "no CronScheduler is used; its pickles would be refused (test_forged_jobs_are_refused_and_never_run)",
}


class Bench:
    """One worker of either class, and a wake-up on whose half something happens."""

    def __init__(self, night: Night, worker_class: type[SimpleWorker]) -> None:
        self.client: redis.Redis = connect(night.settings.redis_url)
        self.night = night
        self.on_half: Callable[[], None] = lambda: None
        models = EchoModels(night.home, lambda: self.on_half())
        self.shift = Shift(night.store, models, Wakeups(self.client), "machine/1-fixed")
        job_slice.begin(self.shift)
        self._worker_class = worker_class
        self.worker = self.another()
        self.queue = Queue(QUEUE, connection=self.client, serializer=JSONSerializer)
        self.registry = StartedJobRegistry(QUEUE, connection=self.client, serializer=JSONSerializer)

    def another(self) -> SimpleWorker:
        """One more start under the same name."""
        if issubclass(self._worker_class, ResidentWorker):
            return self._worker_class(self.night.settings.redis_url, self.shift)
        name = "machine/1-fixed"
        return self._worker_class([QUEUE], name=name, connection=self.client, serializer=JSONSerializer)

    def arrive(self, worker: SimpleWorker) -> None:
        worker._arrive() if isinstance(worker, ResidentWorker) else worker.register_birth()

    def run(self, *, on_half: Callable[[], None], **options: object) -> None:
        """Run one wake-up of a job of one item."""
        self.on_half = on_half
        item = ItemSpec(custom_id="item-0", text="raz dwa trzy cztery")
        cells = (CellSpec(target="echo"),)
        job_id = self.night.store.submit(JobSpec(kind=JobKind.GENERATION, name="row", cells=cells, items=(item,)))
        self.queue.enqueue(ADVANCE, job_id, **options)
        self.work()

    def work(self) -> None:
        """Run what is queued, each class by its own loop."""
        if isinstance(self.worker, ResidentWorker):
            self.worker._arrive()
            while self.queue.count:
                taken = self.worker._next_wakeup()
                if taken is not None:
                    self.worker.execute_job(taken, self.worker._queue)
        else:
            self.worker.work(burst=True, logging_level="CRITICAL")


def row_1(bench: Bench) -> bool:
    """An unlimited job's worker is still believed in after RQ's lease of its start."""
    seen: list[int] = []

    def later() -> None:
        bench.client.expire(bench.worker.key, 5)
        time.sleep(4 * BEAT_S)
        seen.append(bench.client.ttl(bench.worker.key))  # type: ignore[arg-type]

    bench.run(on_half=later, job_timeout=-1)
    return seen[0] > 5


def row_2(bench: Bench) -> bool:
    """A job of eight hours whose worker is killed is not taken for alive for eight hours."""
    ends_at: list[float] = []

    def look() -> None:
        ends_at.extend(score for _, score in bench.client.zrange(bench.registry.key, 0, -1, withscores=True))  # type: ignore[union-attr]

    bench.run(on_half=look, job_timeout=8 * 3600)
    return ends_at[0] - time.time() < 120


def row_3(bench: Bench) -> bool:
    """Whoever counts the running jobs when the first lease has passed does not end one."""
    after: list[int] = []

    def count() -> None:
        _let_the_first_lease_pass(bench)
        _ = bench.registry.count
        after.append(bench.client.zcard(bench.registry.key))  # type: ignore[arg-type]

    bench.run(on_half=count, job_timeout=-1)
    return after == [1]


def row_4(bench: Bench) -> bool:
    """Nor does he queue it a second time."""
    after: list[int] = []

    def count() -> None:
        _let_the_first_lease_pass(bench)
        _ = bench.registry.count
        after.append(bench.client.llen(bench.queue.key))  # type: ignore[arg-type]
        bench.client.delete(bench.queue.key)

    bench.run(on_half=count, job_timeout=-1, retry=Retry(max=1))
    return after == [0]


def row_9(bench: Bench) -> bool:
    """A worker of the same name as one that was killed a moment ago begins."""
    bench.arrive(bench.worker)
    try:
        bench.arrive(bench.another())
    except ValueError:
        return False
    return True


def row_12(bench: Bench) -> bool:
    """A wake-up that a killed worker had half taken is gone when the next one arrives."""
    bench.queue.enqueue(ADVANCE, "half-taken", job_timeout=-1)
    bench.client.lmove(bench.queue.key, bench.queue.intermediate_queue_key)
    bench.run(on_half=lambda: None, job_timeout=-1)
    return not bench.client.llen(bench.queue.intermediate_queue_key)


def row_15(bench: Bench) -> bool:
    """No alarm is set that would raise between any two byte-codes."""
    left: list[float] = []
    bench.run(on_half=lambda: left.append(signal.getitimer(signal.ITIMER_REAL)[0]), job_timeout=100)
    return left == [0.0]


def row_21(bench: Bench) -> bool:
    """Nothing of a job that ended stays in Redis for 500 seconds or a year."""
    bench.run(on_half=lambda: None, job_timeout=-1)
    return not bench.client.keys("rq:job:*") and not bench.client.keys("rq:results:*")


def row_22(bench: Bench) -> bool:
    """A forged job is never run: JSON is no sandbox."""
    mark = bench.night.home / "intruded"
    bench.queue.enqueue("os.system", f"touch '{mark}'", job_timeout=-1)
    bench.work()
    return not mark.exists()


CHECKS = (row_1, row_2, row_3, row_4, row_9, row_12, row_15, row_21, row_22)
ON_BOTH = {int(check.__name__.removeprefix("row_")): check for check in CHECKS}


def _let_the_first_lease_pass(bench: Bench) -> None:
    """As if the job had been running for longer than RQ believed at its start."""
    for execution in bench.client.zrange(bench.registry.key, 0, -1):  # type: ignore[union-attr]
        bench.client.zadd(bench.registry.key, {execution: time.time() - 1})
    time.sleep(4 * BEAT_S)


@contextlib.contextmanager
def bench_for(home: Path, worker_class: type[SimpleWorker]) -> Iterator[Bench]:
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    with Night(home) as night:
        night.broker()
        until(night.settings.broker_socket.exists)
        bench = Bench(night, worker_class)
        try:
            yield bench
        finally:
            bench.client.close()
            for each, handler in handlers.items():
                signal.signal(each, handler)


@pytest.mark.parametrize("row", sorted(ON_BOTH))
def test_a_row_that_can_happen(row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds for nocka's worker, and the same check fails on RQ's."""
    monkeypatch.setattr(resident, "BEAT_EVERY_S", BEAT_S)
    with bench_for(tmp_path / "nocka", ResidentWorker) as bench:
        assert ON_BOTH[row](bench), "nocka's worker"
    with bench_for(tmp_path / "stock", SimpleWorker) as bench:
        assert not ON_BOTH[row](bench), "RQ's own has mended this: drop the work-around"


def test_every_row_is_answered() -> None:
    """Twenty-two rows, each held by a check on both, by a test that exists, or impossible."""
    assert sorted([*ON_BOTH, *BY_A_TEST, *CANNOT_OCCUR]) == list(range(1, 23))
    written = "".join(path.read_text("utf-8") for path in TESTS.rglob("test_*.py"))
    for name in [*BY_A_TEST.values(), *re.findall(r"test_\w+", " ".join(CANNOT_OCCUR.values()))]:
        assert f"def {name}(" in written, name
    print(f"\nfigure 5: of 22 ways to fail, {len(ON_BOTH)} shown on RQ's own worker and held by nocka's, ", end="")
    print(f"{len(BY_A_TEST)} held by tests of nocka's own, {len(CANNOT_OCCUR)} cannot occur")
