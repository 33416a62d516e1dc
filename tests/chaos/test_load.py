"""Figures 4, 6 and 8: many writers, many items, and inputs of every kind of bad."""

from __future__ import annotations

import base64
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from api_cli.cli import cli
from db.status import JobState, ResultState
from tests.chaos.night import HERE, SUBMIT, Night
from tests.chaos.writers import ITEMS, Cancels, Pauses, Retries, Writer
from tests.worker.helpers import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

WRITING_S = 60.0
MANY_ITEMS, MANY_LINES = 10_000, 50_000
GROWTH_ALLOWED_BYTES = 20 * 1024**2
INPUTS = 300
FAILURE_CASES = Path(__file__).parents[3] / "shared" / "data" / "failure_cases.jsonl"
#: What a user must never see.
BROKEN = ("database is locked", "Traceback")


def test_four_writers_and_a_worker(tmp_path: Path) -> None:
    """Four command lines submit, cancel, pause, resume and retry for a minute under a worker; nothing is lost."""
    with Night(tmp_path / "home") as night:
        processes = [night.broker(), night.worker()]
        retries = Retries(night, tmp_path)
        writers = [Writer(night, tmp_path), Cancels(night, tmp_path), Pauses(night, tmp_path), retries]
        with ThreadPoolExecutor(len(writers)) as pool:
            list(pool.map(_write_on, writers, [time.monotonic() + WRITING_S] * len(writers)))
        printed = [job_id for writer in writers for job_id in writer.jobs]
        for job_id in printed:
            night.await_end(job_id)
        assert sorted(job.id for job in night.store.jobs()) == sorted(printed)
        for job_id in printed:
            found = list(night.store.results(job_id))
            assert {result.custom_id for result in found} == {f"line-{number + 1}" for number in range(ITEMS)}
            cancelled = any(job_id in writer.cancelled for writer in writers)
            ended = {ResultState.FAILED if job_id in retries.jobs else ResultState.DONE}
            assert night.store.job(job_id).state is (JobState.CANCELLED if cancelled else JobState.DONE)
            assert {result.state for result in found} <= ended | ({ResultState.CANCELLED} if cancelled else set())
        again = sum(result.attempts - 1 for result in night.store.results(retries.jobs[0]))
        assert again == retries.retried > 0, "each failed result that was retried was tried once more"
        assert all(process.code is None for process in processes)
        said = [text for writer in writers for text in writer.said] + [each.output.read_text() for each in processes]
    assert not [text for text in said if any(word in text for word in BROKEN)]
    accepted = sum((writer.accepted for writer in writers), Counter())
    assert all(accepted[verb] for verb in ("submit", "cancel", "pause", "resume", "retry")), accepted
    told = ", ".join(f"{count} {verb}" for verb, count in accepted.items())
    print(f"\nfigure 4: {len(writers)} writers and a worker for {WRITING_S:.0f} s: {told}; none locked, none lost")


def _write_on(writer: Writer, ends_at: float) -> None:
    while time.monotonic() < ends_at:
        writer.write()


def test_many_items(tmp_path: Path) -> None:
    """10,000 items that cost nothing through the real worker: its memory stays flat. Times are told, not judged."""
    with Night(tmp_path / "home", CHAOS_ENGINE="nothing") as night:
        night.broker()
        began_at = time.monotonic()
        lines = night.submit([f"wiersz {number}" for number in range(MANY_LINES)])
        submit_s = time.monotonic() - began_at
        assert night.counts(lines).waiting == MANY_LINES
        night.store.cancel(lines)
        job_id = night.submit([f"zdanie {number}" for number in range(MANY_ITEMS)])
        worker = night.start(str(HERE / "chaos_worker.py"))
        until(lambda: night.counts(job_id).done >= MANY_ITEMS // 10, 120)
        process, began_at = psutil.Process(worker.pid), time.monotonic()
        before_bytes, done_before = process.memory_info().rss, night.counts(job_id).done
        status_s: list[float] = []
        ended_before, got_on_at = 0, began_at
        while night.counts(job_id).ended < MANY_ITEMS:
            asked_at = time.monotonic()
            assert night.nocka("status", job_id).returncode == 0
            status_s.append(time.monotonic() - asked_at)
            ended = night.counts(job_id).ended
            got_on_at = time.monotonic() if ended > ended_before else got_on_at
            ended_before = ended
            assert time.monotonic() - got_on_at < 60, "nothing ends any more"
            time.sleep(1.0)
        items_per_s = (MANY_ITEMS - done_before) / (time.monotonic() - began_at)
        growth_bytes = process.memory_info().rss - before_bytes
        assert night.counts(job_id).done == MANY_ITEMS
        assert night.attempts(job_id) == MANY_ITEMS
    assert growth_bytes < GROWTH_ALLOWED_BYTES
    print(
        f"\nfigure 6: {MANY_ITEMS} items: {items_per_s:.0f} items/s (goal 100), "
        f"memory {growth_bytes / 1024**2:+.1f} MiB (limit 20), nocka status {statistics.median(status_s):.2f} s, "
        f"at most {max(status_s):.2f} s (goal 0.5), submit of {MANY_LINES} lines {submit_s:.1f} s (goal 10)"
    )


def test_inputs_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid one gets its answer, any other a clear error or a failed item; no traceback, and the worker lives."""
    outcomes = {"answered": 0, "refused": 0, "failed": 0}
    with Night(tmp_path / "home") as night:
        monkeypatch.setenv("NOCKA_HOME", str(night.home))
        night.broker()
        worker = night.worker()
        asked: dict[str, bool] = {}
        for number, (valid, content) in enumerate(inputs()):
            path = tmp_path / f"input-{number}.jsonl"
            path.write_bytes(content)
            # A process for each would be most of the time; the one that matters, the worker, is real.
            ran = CliRunner().invoke(cli, ["submit", str(path), *SUBMIT, "--max-tokens", "2", "--force"])
            assert ran.exception is None or isinstance(ran.exception, SystemExit), (content, ran.exception)
            assert "Traceback" not in ran.output
            if ran.exit_code == 0:
                asked[ran.stdout.strip().splitlines()[-1]] = valid
            else:
                assert not valid, (content, ran.output)
                assert ran.exit_code in (1, 2) and len(ran.output.strip()) > 20
                outcomes["refused"] += 1
        for job_id, valid in asked.items():
            night.await_end(job_id)
            for result in night.store.results(job_id):
                answered = result.state is ResultState.DONE
                assert answered or (not valid and result.error_code and result.error_message), result
            outcomes["answered" if night.counts(job_id).failed == 0 else "failed"] += 1
        assert worker.code is None
        assert not worker.said("Traceback")
    assert outcomes["answered"] >= INPUTS // 3
    figures = ", ".join(f"{count} {name}" for name, count in outcomes.items())
    print(f"\nfigure 8: {sum(outcomes.values())} inputs: {figures}; no traceback, the worker lives")


def inputs() -> Iterator[tuple[bool, bytes]]:
    """At least 300 files, a third of them valid, with whether each is."""
    texts: list[str] = []
    letters = st.characters(exclude_categories=["Cs", "Cc"])

    @settings(max_examples=INPUTS // 3, derandomize=True, database=None, deadline=None)
    @given(st.text(letters, min_size=1, max_size=60).filter(str.strip))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    while len(texts) < INPUTS // 3:
        texts.append(f"zdanie {len(texts)}")
    chance = random.Random(8)
    for text in texts[: INPUTS // 3]:
        yield True, json.dumps({"text": text}, ensure_ascii=False).encode()
    known = list(_known())
    yield from known
    for number in range(INPUTS - INPUTS // 3 - len(known)):
        yield False, _spoilt(number, texts[number % len(texts)], chance)


def _known() -> Iterator[tuple[bool, bytes]]:
    """The inputs of public bug reports, where they are at hand; some are fine for us and some are not."""
    if not FAILURE_CASES.exists():
        return
    for line in FAILURE_CASES.read_text("utf-8").splitlines():
        case = json.loads(line)
        if "raw_bytes_b64" in case:
            yield False, base64.b64decode(case["raw_bytes_b64"])
        elif case["category"] == "jsonl":
            given = case["input"] if isinstance(case["input"], list) else [case["input"]]
            for each in given:
                yield False, each.encode()
        elif isinstance(case["input"], str):
            yield False, json.dumps({"text": case["input"]}, ensure_ascii=False).encode()


def _spoilt(number: int, text: str, chance: random.Random) -> bytes:
    """A file that is wrong in one of a dozen ways."""
    good = json.dumps({"custom_id": "a", "text": text}, ensure_ascii=False).encode()
    body: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": text}]}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    kinds: list[bytes] = [
        good[: chance.randrange(1, len(good))],
        b"\xff\xfe" + good,
        json.dumps([text]).encode(),
        json.dumps({"custom_id": "a"}).encode(),
        good + b"\n" + good,
        json.dumps({"text": " " * chance.randrange(9)}).encode(),
        json.dumps({"text": text, "temperature": -chance.random() - 0.1}).encode(),
        json.dumps({"text": text, "max_tokens": 0}).encode(),
        json.dumps({"text": text, "sweets": 1}).encode(),
        json.dumps({"text": 7}).encode(),
        json.dumps({"text": "słowo " * 20_000}).encode(),
        json.dumps({**line, "url": "/v1/images"}).encode(),
        json.dumps({**line, "body": {**body, "messages": []}}).encode(),
        json.dumps({**line, "body": {**body, "tools": [{"type": "function"}]}}).encode(),
        json.dumps({**line, "body": {**body, "messages": [{"role": "wizard", "content": text}]}}).encode(),
        bytes(chance.randrange(256) for _ in range(40)),
        b"",
    ]
    return kinds[number % len(kinds)]
