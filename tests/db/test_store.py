"""What each verb of the store promises, on every database it runs on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from sqlalchemy import event, select

from db.errors import NotAllowed, NotFound
from db.records import Claim, Finished
from db.specs import CellSpec, Decoding, ItemSpec, JobSpec, Message, Overrides
from db.status import RESULT_TRANSITIONS, AttemptOutcome, JobState, ResultState, may_become
from db.store import PAGE, Store, utc_now
from db.tables import attempts
from db.transactions import reading

BuildJob = Callable[..., JobSpec]


def claim(store: Store, worker: str = "mac/1") -> Claim:
    """A claim that is known to succeed."""
    taken = store.claim(worker)
    assert taken is not None
    return taken


def outcomes(store: Store) -> list[str]:
    """How every attempt so far ended, in order."""
    with reading(store.engine) as connection:
        return list(connection.scalars(select(attempts.c.outcome).order_by(attempts.c.id)))


def states(store: Store, job_id: str) -> list[str]:
    return [result.state.value for result in store.results(job_id)]


class TestSubmit:
    def test_a_submitted_job_waits_with_one_result_for_each_item_and_cell(self, store: Store, job: BuildJob) -> None:
        """Items are outermost, so that every cell meets the same item at nearly the same time."""
        job_id = store.submit(job(2, cell_count=3))
        record = store.job(job_id)
        assert (record.state, record.counts.waiting, record.counts.total) == (JobState.WAITING, 6, 6)
        assert [(result.custom_id, result.cell_position) for result in store.results(job_id)] == [
            (f"item-{item}", cell) for item in range(2) for cell in range(3)
        ]

    def test_what_was_submitted_comes_back_unchanged(self, store: Store) -> None:
        """Messages, overrides, references and cells survive the way into the database and out."""
        item = ItemSpec(
            custom_id="żółw/1",
            messages=(
                Message(role="system", content="Zwięźle."),
                Message(role="user", content="\u201eŁódź\u201d 🦆\n"),
            ),
            reference="tak",
            overrides=Overrides(max_tokens=3, stop=("\n",)),
        )
        cell = CellSpec(target="t", target_revision="abc", decoding=Decoding(temperature=0.7, seed=2**62))
        job_id = store.submit(JobSpec(kind="generation", name="n", cells=(cell,), items=(item,)))
        taken = claim(store)
        assert (taken.item, taken.cell, taken.job_id) == (item, cell, job_id)
        assert store.cells(job_id) == [cell]
        assert store.result(job_id, "żółw/1")[0].item == item

    def test_an_id_sorts_by_time_and_is_never_given_twice(self, store: Store, job: BuildJob) -> None:
        """Also many in the same second, as under a clock that stands."""
        moment = dt.datetime(2026, 11, 30, 1, 22, 5, tzinfo=dt.UTC)
        still = Store(store.engine, lambda: moment)
        ids = {still.submit(job(1)) for _ in range(20)}
        assert len(ids) == 20
        assert all(job_id.startswith("20261130-012205-") for job_id in ids)
        assert max(ids) < Store(store.engine, lambda: moment + dt.timedelta(seconds=1)).submit(job(1))

    def test_a_rejected_item_is_a_failed_result_in_every_cell(self, store: Store, job: BuildJob) -> None:
        """It keeps its reason, has no input, and is not run."""
        job_id = store.submit(job(1, cell_count=2, rejected=2))
        failed = list(store.results(job_id, states={ResultState.FAILED}))
        assert [(result.custom_id, result.error_code, result.error_message, result.item) for result in failed] == [
            (f"line-{number}", "empty_prompt", f"line {number} has no prompt", None) for number in (0, 0, 1, 1)
        ]
        assert store.job(job_id).counts.waiting == 2

    def test_a_job_whose_items_are_all_rejected_is_done_at_once(self, store: Store, job: BuildJob) -> None:
        """Nothing would ever close it otherwise."""
        record = store.job(store.submit(job(0, rejected=2)))
        assert (record.state, record.counts.failed) == (JobState.DONE, 2)
        assert record.finished_at is not None
        assert store.claim("mac/1") is None

    @pytest.mark.parametrize("text", ["half \ud800", "nul \x00"])
    def test_what_no_database_can_hold_is_refused_before_the_store(self, text: str) -> None:
        """JSON may spell half a surrogate pair or a NUL; SQLite takes no such text, or Postgres does not."""
        with pytest.raises(ValueError, match="not text"):
            ItemSpec(custom_id="a", text=text)


class TestReading:
    def test_a_job_is_found_by_id_by_unique_prefix_and_as_last(self, store: Store, job: BuildJob) -> None:
        """Upper case and blanks around it do no harm."""
        first, second = store.submit(job()), store.submit(job())
        assert store.job(first).id == first
        assert store.job(f" {second[:-1].upper()} ").id == second
        assert store.job("last").id == second

    @pytest.mark.parametrize("ref", ["last", "nope", "", "%", "_"])
    def test_an_unknown_job_is_not_found(self, store: Store, ref: str) -> None:
        """Nor does a wildcard match anything."""
        with pytest.raises(NotFound):
            store.job(ref)

    def test_an_ambiguous_prefix_lists_what_it_may_mean(self, store: Store, job: BuildJob) -> None:
        """It is never guessed."""
        ids = [store.submit(job()), store.submit(job())]
        with pytest.raises(NotFound, match="more than one") as caught:
            store.job(ids[0][:8])
        assert all(job_id in str(caught.value) for job_id in ids)

    def test_jobs_come_newest_first_each_with_its_own_totals(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """One job's figures never leak into another's."""
        first, second, third = (store.submit(job(2)) for _ in range(3))
        assert store.finish(claim(store), finished)
        assert [record.id for record in store.jobs()] == [third, second, first]
        assert [record.id for record in store.jobs(limit=2)] == [third, second]
        assert [record.completion_tokens for record in store.jobs()] == [0, 0, 5]

    def test_jobs_are_read_in_one_query(self, store: Store, job: BuildJob) -> None:
        """However many there are."""
        for _ in range(3):
            store.submit(job())
        statements: list[str] = []
        event.listen(store.engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
        store.jobs(limit=3)
        assert [statement for statement in statements if statement.startswith("SELECT")] == statements[-1:]

    def test_results_are_read_whole_over_many_pages(self, store: Store, job: BuildJob) -> None:
        """Each page is a transaction of its own, and none is lost or doubled between two."""
        job_id = store.submit(job(PAGE + 50, cell_count=2))
        assert [result.item_position for result in store.results(job_id)] == [
            item for item in range(PAGE + 50) for _ in range(2)
        ]
        assert list(store.results(job_id, states={ResultState.DONE})) == []

    def test_a_missing_job_or_item_is_not_found(self, store: Store, job: BuildJob) -> None:
        """Whatever is asked of it, and before the first result is read."""
        job_id = store.submit(job())
        for ask in (store.cells, store.results, store.cancel, store.retry, lambda ref: store.result(ref, "item-0")):
            with pytest.raises(NotFound):
                ask("nope")
        with pytest.raises(NotFound, match="item-9"):
            store.result(job_id, "item-9")


class TestClaim:
    def test_the_most_urgent_goes_first(self, store: Store, job: BuildJob) -> None:
        """Priority, then age of the job, then turn."""
        old, urgent, new = store.submit(job(2)), store.submit(job(2, priority=5)), store.submit(job(1))
        assert store.next_job() == urgent
        order = [(taken.job_id, taken.item.custom_id) for taken in (claim(store) for _ in range(5))]
        assert order == [
            (urgent, "item-0"),
            (urgent, "item-1"),
            (old, "item-0"),
            (old, "item-1"),
            (new, "item-0"),
        ]
        assert store.claim("mac/1") is None
        assert store.next_job() is None

    def test_the_attempt_is_counted_before_anything_is_generated(self, store: Store, job: BuildJob) -> None:
        """A worker that dies in it has used it up."""
        job_id = store.submit(job(1))
        taken = claim(store)
        record = store.job(job_id)
        assert taken.attempt == 1
        assert (record.state, record.counts.running) == (JobState.RUNNING, 1)
        assert record.started_at is not None
        assert outcomes(store) == [AttemptOutcome.RUNNING]

    def test_a_claim_holds_until_it_ends(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """Finished, failed or given back: it no longer stands."""
        store.submit(job(3))
        for end in (lambda taken: store.finish(taken, finished), lambda taken: store.fail(taken, "c", "m")):
            taken = claim(store)
            assert store.holds(taken)
            assert end(taken)
            assert not store.holds(taken)


class TestEnding:
    def test_a_finished_result_keeps_its_text_and_figures(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """The common figures have columns, the rest is JSON; the job counts them."""
        job_id = store.submit(job(1))
        assert store.finish(claim(store), finished)
        result = store.result(job_id, "item-0")[0]
        assert (result.state, result.text, result.finish_reason) == (ResultState.DONE, "gęślą jaźń", "stop")
        assert (result.prompt_tokens, result.completion_tokens, result.rounds) == (7, 5, 3)
        assert (result.tokens_per_s, result.acceptance_rate) == (2.5, 0.25)
        assert (result.metrics, result.config) == (finished.metrics, finished.config)
        record = store.job(job_id)
        assert (record.prompt_tokens, record.completion_tokens, record.busy_s) == (7, 5, 2.5)
        assert record.reused_tokens == 3
        assert record.progress_at == result.finished_at
        assert result.finished_at is not None
        assert result.finished_at.tzinfo is dt.UTC

    def test_the_last_result_closes_the_job_and_no_earlier_one(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """A failed result ends as well as a finished one."""
        job_id = store.submit(job(3))
        claims = [claim(store) for _ in range(3)]
        assert store.finish(claims[2], finished)
        assert store.fail(claims[0], "prompt_too_long", "9 > 8")
        assert (store.job(job_id).state, store.job(job_id).finished_at) == (JobState.RUNNING, None)
        assert store.finish(claims[1], finished)
        assert store.job(job_id).state is JobState.DONE
        assert store.job(job_id).finished_at is not None
        assert store.result(job_id, "item-0")[0].error_code == "prompt_too_long"
        assert outcomes(store) == ["failed", "done", "done"]

    def test_a_result_is_committed_once(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """A worker thought dead, whose result was taken by another, writes nothing when it comes back."""
        job_id = store.submit(job(1))
        late = claim(store, "mac/1")
        assert store.reclaim("mac") == 1
        current = claim(store, "mac/2")
        assert (late.attempt, current.attempt) == (1, 2)
        assert not store.holds(late)
        assert not store.finish(late, finished)
        assert not store.fail(late, "late", "too late")
        assert not store.give_back(late)
        assert store.result(job_id, "item-0")[0].state is ResultState.RUNNING
        assert store.finish(current, finished)
        assert not store.finish(current, finished)
        assert outcomes(store) == ["lost", "done"]

    def test_the_next_of_the_job_is_claimed_with_the_end_of_the_one_before(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """In one transaction; the last result closes the job, and a stale claim is followed by nothing."""
        job_id = store.submit(job(2))
        first = claim(store)
        turnover = store.finish_and_claim(first, finished, "mac/1")
        assert turnover.committed and turnover.following is not None
        assert (turnover.following.item.custom_id, turnover.following.attempt) == ("item-1", 1)
        assert states(store, job_id) == ["done", "running"]
        stale = store.finish_and_claim(first, finished, "mac/1")
        assert (stale.committed, stale.following) == (False, None)
        last = store.finish_and_claim(turnover.following, finished, "mac/1")
        assert (last.committed, last.following) == (True, None)
        assert (store.job(job_id).state, outcomes(store)) == (JobState.DONE, ["done", "done"])

    def test_what_is_more_urgent_is_claimed_by_itself(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """A transaction that holds two jobs could wait for another that holds them the other way round."""
        store.submit(job(2))
        running = claim(store)
        urgent = store.submit(job(1, priority=1))
        turnover = store.finish_and_claim(running, finished, "mac/1")
        assert (turnover.committed, turnover.following) == (True, None)
        assert claim(store).job_id == urgent

    def test_a_given_back_attempt_is_not_charged(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """However often a worker is drained; yet an old claim stays stale."""
        store.submit(job(1))
        for _ in range(3):
            taken = claim(store)
            assert taken.attempt == 1
            assert store.give_back(taken)
        current = claim(store)
        assert current.attempt == 1
        assert not store.finish(taken, finished)
        assert outcomes(store) == ["given_back"] * 3 + ["running"]

    def test_reclaim_takes_only_what_this_machine_held(self, store: Store, job: BuildJob) -> None:
        """Also where one machine's name begins another's or holds a wildcard."""
        store.submit(job(4))
        held = [claim(store, worker) for worker in ("mac/1-a", "mac-2/1-a", "m_c/1-a", "Mac/1-a")]
        assert store.reclaim("m_c") == 1
        assert store.reclaim("mac") == 1
        assert [store.holds(taken) for taken in held] == [False, True, False, True]
        assert store.reclaim("mac") == 0

    def test_a_death_sends_the_result_to_the_end_of_its_job_and_the_third_puts_it_aside(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """It fails with what is known of the death, the job goes on, and `retry` forgets the deaths."""
        job_id = store.submit(job(2))
        assert claim(store).item.custom_id == "item-0"
        assert store.reclaim("mac", "SIGABRT") == 1
        assert store.finish(claim(store), finished)
        for attempt in (2, 3):
            again = claim(store)
            assert (again.item.custom_id, again.attempt) == ("item-0", attempt)
            assert store.reclaim("mac", f"SIGABRT number {attempt}") == 1
        aside = store.result(job_id, "item-0")[0]
        assert (aside.state, aside.error_code) == (ResultState.FAILED, "worker_crashed")
        assert "SIGABRT number 3" in (aside.error_message or "")
        assert store.job(job_id).state is JobState.DONE
        assert outcomes(store) == ["lost", "done", "lost", "lost"]

        assert store.retry(job_id) == 1
        for _ in range(2):
            claim(store)
            store.reclaim("mac")
        assert states(store, job_id) == ["waiting", "done"]

    def test_being_given_back_is_no_death(self, store: Store, job: BuildJob) -> None:
        """However often it happens, the result keeps its turn."""
        store.submit(job(2))
        for _ in range(4):
            taken = claim(store)
            assert taken.item.custom_id == "item-0"
            assert store.give_back(taken)

    def test_work_adds_up_over_attempts_and_a_retry_keeps_the_start(self, store: Store, job: BuildJob) -> None:
        """Also work that was given back or failed; the clock ticks a second a look, three looks an attempt."""
        job_id = store.submit(job(1))
        assert store.give_back(claim(store))
        once = store.job(job_id)
        assert store.fail(claim(store), "generation_failed", "boom")
        assert store.retry(job_id) == 1
        again = store.job(job_id)
        assert 0 < once.worked_s < again.worked_s
        assert again.started_at == once.started_at

    def test_a_nul_in_a_text_does_not_stop_the_night(self, store: Store, job: BuildJob) -> None:
        """Byte fallback can spell one, and Postgres cannot hold it."""
        job_id = store.submit(job(1))
        assert store.finish(claim(store), Finished(text="a\x00b", finish_reason="stop", metrics={}, config={}))
        assert store.result(job_id, "item-0")[0].text == "a\N{REPLACEMENT CHARACTER}b"


class TestCancel:
    def test_cancel_ends_what_waits_and_what_runs_and_keeps_the_rest(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """The running worker learns it from `holds` and cannot commit."""
        job_id = store.submit(job(3))
        assert store.finish(claim(store), finished)
        running = claim(store)
        record = store.cancel(job_id)
        assert (record.state, record.counts.done, record.counts.cancelled) == (JobState.CANCELLED, 1, 2)
        assert record.finished_at is not None
        assert not store.holds(running)
        assert not store.finish(running, finished)
        assert store.claim("mac/1") is None
        assert states(store, job_id) == ["done", "cancelled", "cancelled"]
        assert outcomes(store) == ["done", "cancelled"]

    def test_cancel_again_changes_nothing(self, store: Store, job: BuildJob) -> None:
        """It is idempotent, to the second."""
        job_id = store.submit(job())
        assert store.cancel(job_id) == store.cancel(job_id)

    def test_a_job_that_ended_cannot_be_cancelled(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """Done or failed."""
        done = store.submit(job(1))
        assert store.finish(claim(store), finished)
        failed = store.submit(job(1))
        store.fail_job(failed, "model_not_loadable", "no such file")
        for job_id in (done, failed):
            with pytest.raises(NotAllowed):
                store.cancel(job_id)


class TestPause:
    def test_nothing_of_a_paused_job_is_claimed_and_what_runs_is_to_be_given_back(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """Uncharged; other jobs go on, and the paused one does after `resume`, from its first start."""
        job_id = store.submit(job(2, priority=5))
        other = store.submit(job(1))
        running = claim(store)
        started_at = store.job(job_id).started_at
        assert store.pause(job_id).state is JobState.PAUSED
        assert not store.holds(running)
        assert store.give_back(running)
        assert claim(store).job_id == other
        assert store.claim("mac/1") is None and store.next_job() is None

        assert store.resume(job_id).state is JobState.WAITING
        assert store.next_job() == job_id
        again = claim(store)
        assert (again.item.custom_id, again.attempt) == ("item-0", 1)
        assert store.holds(again)
        assert (store.job(job_id).state, store.job(job_id).started_at) == (JobState.RUNNING, started_at)
        assert "given_back" in outcomes(store)

    def test_an_item_that_ends_under_a_pause_is_kept_and_may_close_the_job(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """The pause came too late for it."""
        job_id = store.submit(job(1))
        running = claim(store)
        store.pause(job_id)
        assert store.finish(running, finished)
        assert store.job(job_id).state is JobState.DONE

    def test_pause_and_resume_may_be_said_twice_and_not_to_what_ended(self, store: Store, job: BuildJob) -> None:
        """A job that runs is not set back by `resume`."""
        job_id = store.submit(job(1))
        claim(store)
        assert store.resume(job_id).state is JobState.RUNNING
        assert store.pause(job_id) == store.pause(job_id)
        assert store.cancel(job_id).state is JobState.CANCELLED
        for verb in (store.pause, store.resume):
            with pytest.raises(NotAllowed):
                verb(job_id)


class TestRetry:
    def test_retry_takes_only_the_states_it_is_asked_for(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """And refuses those that end for good."""
        job_id = store.submit(job(3))
        assert store.finish(claim(store), finished)
        assert store.fail(claim(store), "generation_failed", "boom")
        store.cancel(job_id)
        assert store.retry(job_id, {ResultState.FAILED}) == 1
        assert states(store, job_id) == ["done", "waiting", "cancelled"]
        assert store.fail(claim(store), "generation_failed", "boom")
        assert store.job(job_id).state is JobState.DONE
        assert store.retry(job_id, {ResultState.CANCELLED}) == 1
        assert states(store, job_id) == ["done", "failed", "waiting"]
        with pytest.raises(ValueError, match="done may not become waiting"):
            store.retry(job_id, {ResultState.DONE})

    def test_a_paused_job_stays_paused_when_its_results_are_retried(self, store: Store, job: BuildJob) -> None:
        """The user's word stands."""
        job_id = store.submit(job(2))
        assert store.fail(claim(store), "generation_failed", "boom")
        store.pause(job_id)
        assert store.retry(job_id) == 1
        assert store.job(job_id).state is JobState.PAUSED

    def test_retry_runs_what_failed_or_was_cancelled_and_never_what_is_done(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """The error is gone, the attempts stay counted."""
        job_id = store.submit(job(3))
        assert store.finish(claim(store), finished)
        assert store.fail(claim(store), "generation_failed", "boom")
        store.cancel(job_id)
        assert store.retry(job_id) == 2
        assert (store.job(job_id).state, store.job(job_id).finished_at) == (JobState.WAITING, None)
        assert states(store, job_id) == ["done", "waiting", "waiting"]
        again = claim(store)
        assert (again.item.custom_id, again.attempt) == ("item-1", 2)
        assert store.result(job_id, "item-1")[0].error_code is None
        assert store.finish(again, finished)
        assert store.finish(claim(store), finished)
        assert store.job(job_id).state is JobState.DONE
        assert store.retry(job_id) == 0
        assert store.job(job_id).state is JobState.DONE

    def test_a_worker_cancelled_before_the_retry_stays_fenced_after_it(
        self, store: Store, job: BuildJob, finished: Finished
    ) -> None:
        """Also when the result is claimed again under its feet."""
        job_id = store.submit(job(1))
        late = claim(store)
        store.cancel(job_id)
        assert store.retry(job_id) == 1
        assert not store.finish(late, finished)
        current = claim(store)
        assert not store.finish(late, finished)
        assert store.finish(current, finished)

    def test_a_running_job_keeps_running_when_its_failed_results_are_retried(self, store: Store, job: BuildJob) -> None:
        """Only an ended job goes back to waiting."""
        job_id = store.submit(job(2))
        assert store.fail(claim(store), "generation_failed", "boom")
        assert store.retry(job_id) == 1
        assert store.job(job_id).state is JobState.RUNNING

    def test_a_rejected_item_is_never_retried(self, store: Store, job: BuildJob) -> None:
        """It has no input to run."""
        job_id = store.submit(job(0, rejected=2))
        assert store.retry(job_id) == 0
        assert store.job(job_id).state is JobState.DONE


class TestFailJob:
    def test_a_failed_job_can_be_retried_whole(self, store: Store, job: BuildJob, finished: Finished) -> None:
        """What waited and what ran carries the job's error; what was done stays."""
        job_id = store.submit(job(3))
        assert store.finish(claim(store), finished)
        running = claim(store)
        store.fail_job(job_id, "model_not_loadable", "needs 12 GiB")
        record = store.job(job_id)
        assert (record.state, record.error_code, record.error_message) == (
            JobState.FAILED,
            "model_not_loadable",
            "needs 12 GiB",
        )
        assert [result.error_code for result in store.results(job_id)] == [None, *["model_not_loadable"] * 2]
        assert not store.finish(running, finished)
        assert store.claim("mac/1") is None
        assert outcomes(store) == ["done", "failed"]
        assert store.retry(job_id) == 2
        assert (store.job(job_id).error_code, store.job(job_id).error_message) == (None, None)

    def test_a_cancelled_job_stays_cancelled(self, store: Store, job: BuildJob) -> None:
        """The user's word stands when the model then cannot be loaded."""
        job_id = store.submit(job(1))
        store.cancel(job_id)
        store.fail_job(job_id, "model_not_loadable", "needs 12 GiB")
        assert (store.job(job_id).state, store.job(job_id).error_code) == (JobState.CANCELLED, None)


def test_may_become_reads_the_table_backwards() -> None:
    """And refuses a step that the table does not know."""
    assert may_become(RESULT_TRANSITIONS, ResultState.DONE) == [ResultState.WAITING, ResultState.RUNNING]
    assert may_become(RESULT_TRANSITIONS, ResultState.WAITING, {ResultState.FAILED}) == [ResultState.FAILED]
    with pytest.raises(ValueError, match="done may not become waiting"):
        may_become(RESULT_TRANSITIONS, ResultState.WAITING, {ResultState.DONE, ResultState.FAILED})


def test_the_clock_is_aware() -> None:
    """A time without its zone would be refused by the tables."""
    assert utc_now().tzinfo is dt.UTC
