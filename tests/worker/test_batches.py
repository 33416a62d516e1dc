"""Results of a cell that run together, with the real engine on the smallest model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mlx_lm.models.cache import KVCache
from sqlalchemy import update

from db.records import ResultRecord
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.status import JobState, ResultState
from db.store import Store
from db.tables import results
from worker.engine.batch import Batch, Ended
from worker.engine.build import Models
from worker.engine.cost import Costs
from worker.engine.model import size_of
from worker.jobs import slice as job_slice
from worker.jobs.slice import Shift
from worker.models_path import target_ref
from worker.wakeups import Wakeups, connect

#: A draft of the mini family makes a small target.
TARGET = "mini-draft"
WORDS = ["Litwo", "Ojczyzno moja", "Ty jesteś jak zdrowie", "Ile cię trzeba cenić", "ten tylko się dowie", "Kto cię"]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


@pytest.fixture
def shift(store: Store, models: Models) -> Shift:
    return Shift(store, models, Wakeups(connect("unix:///nowhere")), "here/1")


def submit(store: Store, *texts: str, batch: int = 3, max_tokens: int = 10, temperature: float = 0.7) -> str:
    decoding = {"max_tokens": max_tokens, "temperature": temperature, "seed": 7}
    cell = CellSpec.model_validate({"target": TARGET, "batch": batch, "decoding": decoding, "dtype": "float32"})
    items = tuple(ItemSpec(custom_id=f"i{number}", text=text) for number, text in enumerate(texts))
    return store.submit(JobSpec(kind=JobKind.GENERATION, name="razem", cells=(cell,), items=items))


def found(store: Store, job_id: str) -> dict[str, ResultRecord]:
    return {result.custom_id: result for result in store.results(job_id)}


def after_steps(monkeypatch: pytest.MonkeyPatch, count: int, act: Callable[[], None]) -> None:
    """Do *act* once, after *count* steps of a batch, and let the store be asked each time."""
    step, steps = Batch.step, iter(range(10_000))

    def stepped(batch: Batch) -> list[Ended]:
        ended = step(batch)
        if next(steps) == count:
            act()
        return ended

    monkeypatch.setattr(Batch, "step", stepped)
    monkeypatch.setattr(job_slice, "ASK_EVERY_S", 0.0)


def test_the_answers_are_those_of_one_by_one(store: Store, shift: Shift) -> None:
    """Six items, three at a time: the same texts, each committed by itself, with how it was made."""
    together, alone = submit(store, *WORDS), submit(store, *WORDS, batch=1)
    assert shift.advance() == 12
    first, second = found(store, together), found(store, alone)
    assert {name: one.text for name, one in first.items()} == {name: one.text for name, one in second.items()}
    assert {one.state for one in first.values()} == {ResultState.DONE}
    assert all(one.config["batch"] == {"rows": 3, "why": "asked for"} for one in first.values())
    assert max(one.metrics["batch"]["rows"] for one in first.values()) > 1.5
    assert all(one.metrics["batch"] is None for one in second.values())
    assert store.job(together).finished_at is not None


@pytest.mark.parametrize("batch", [1, 3])
def test_what_prompts_share_is_read_once_and_the_job_says_so(store: Store, batch: int) -> None:
    """From the second item on; each says how much, and the job how much in all."""
    shared = "Streść po polsku, krótko i rzeczowo, w trzech zdaniach, bez zmyślania: "
    job_id = submit(store, *(shared + words for words in WORDS), batch=batch)
    Shift(store, Models(), Wakeups(connect("unix:///nowhere")), "here/1").advance()
    reused = [one.metrics["reused_tokens"] for one in store.results(job_id)]
    assert reused[0] == 0 and min(reused[1:]) > 16
    assert store.job(job_id).reused_tokens == sum(reused)


def test_one_items_error_touches_no_other(store: Store, shift: Shift) -> None:
    """A prompt that is too long fails with its code between two that succeed."""
    job_id = submit(store, WORDS[0], "słowo " * 5000, WORDS[1])
    shift.advance()
    assert [(one.state, one.error_code) for one in store.results(job_id)] == [
        (ResultState.DONE, None),
        (ResultState.FAILED, "prompt_too_long"),
        (ResultState.DONE, None),
    ]


def test_a_cancelled_item_leaves_the_batch_alone(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of three is taken away in the middle; the others end as if nothing were."""
    job_id = submit(store, *WORDS[:3], max_tokens=24)
    [second] = store.result(job_id, "i1")

    def take_away() -> None:
        with store.engine.begin() as connection:
            gone = {"state": ResultState.CANCELLED, "fence": results.c.fence + 1}
            connection.execute(update(results).where(results.c.id == second.id).values(gone))

    after_steps(monkeypatch, 4, take_away)
    shift.advance()
    ended = found(store, job_id)
    assert [one.state for one in ended.values()] == [ResultState.DONE, ResultState.CANCELLED, ResultState.DONE]
    plain = submit(store, *WORDS[:3], max_tokens=24, batch=1)
    shift.advance()
    beside = found(store, plain)
    assert [ended[name].text for name in ("i0", "i2")] == [beside[name].text for name in ("i0", "i2")]


def test_a_cancelled_job_ends_the_batch(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more of it is committed."""
    job_id = submit(store, *WORDS, max_tokens=30)
    after_steps(monkeypatch, 3, lambda: store.cancel(job_id) and None)
    shift.advance()
    assert {one.state for one in store.results(job_id)} == {ResultState.CANCELLED}


def test_a_drain_gives_all_back(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ran waits again, uncharged, and the next worker ends it."""
    job_id = submit(store, *WORDS[:4], max_tokens=30)
    after_steps(monkeypatch, 3, shift.drain)
    shift.advance()
    assert [(one.state, one.attempts) for one in store.results(job_id)] == [(ResultState.WAITING, 0)] * 4


def test_a_failing_batch_runs_its_items_one_by_one(store: Store, shift: Shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is to blame, nobody else fails with them."""
    job_id = submit(store, *WORDS[:3])

    def fail() -> None:
        raise RuntimeError("kernel")

    after_steps(monkeypatch, 3, fail)
    shift.advance()
    ended = list(store.results(job_id))
    assert {one.state for one in ended} == {ResultState.DONE}
    assert {one.config["batch"]["why"] for one in ended} == {"the batch that it was in failed"}


def test_what_may_have_killed_a_worker_runs_by_itself(store: Store, shift: Shift) -> None:
    """An item that was running when a worker died meets no other; the rest run together all the same."""
    job_id = submit(store, *WORDS[:4])
    assert store.claim("here/0") is not None
    assert store.reclaim("here") == 1
    shift.advance()
    ended = found(store, job_id)
    assert {one.state for one in ended.values()} == {ResultState.DONE}
    assert ended["i0"].config["batch"]["rows"] == 1
    assert all(ended[name].config["batch"]["rows"] == 3 for name in ("i1", "i2", "i3"))


def test_auto_measures_and_says_why(store: Store, shift: Shift, models: Models) -> None:
    """Without a calibration a short measurement decides; with one, that does, and says what speculation gives."""
    job_id = submit(store, *WORDS[:2], batch=0)
    shift.advance()
    [first, _] = store.results(job_id)
    assert first.config["batch"]["why"].startswith("measured: ")
    [cell] = store.cells(job_id)
    # Sixteen rows in the time of one, and a drafter that costs ten tokens' time.
    costs = Costs(
        plain=((128, 1.0),),
        verify=((128, ((1, 1.0), (17, 1.0))),),
        propose={"lookup": ((1, 10.0), (8, 10.0))},
        prefill_token_s=0.1,
    ).as_json()
    store.record_calibration("k", (cell.target, None, "here"), {"costs": costs})
    job_id = submit(store, *WORDS[2:4], batch=0)
    shift.advance()
    [first, _] = store.results(job_id)
    assert first.config["batch"] == {
        "rows": 16,
        "why": "calibrated: 16 rows give 16.00x; speculation would give 0.82x at the very most, every token accepted",
    }


def test_what_a_machine_cannot_hold_fails_by_itself(store: Store) -> None:
    """A text too large for what the weights leave fails alone; weights that are too large fail their job."""
    ref = target_ref(CellSpec.model_validate({"target": TARGET, "dtype": "float32"}))
    size = size_of(ref)
    allowed = size.weights_bytes + size.cache_bytes(150)
    job_id = submit(store, WORDS[0], "słowo " * 60, WORDS[1], batch=1)
    Shift(store, Models(lambda: allowed), Wakeups(connect("unix:///nowhere")), "here/1").advance()
    assert [(one.state, one.error_code) for one in store.results(job_id)] == [
        (ResultState.DONE, None),
        (ResultState.FAILED, "text_too_large"),
        (ResultState.DONE, None),
    ]
    job_id = submit(store, *WORDS)
    Shift(store, Models(lambda: 1000), Wakeups(connect("unix:///nowhere")), "here/2").advance()
    assert (store.job(job_id).state, store.job(job_id).error_code) == (JobState.FAILED, "model_too_large")


def test_a_model_that_cannot_be_batched_runs_one_by_one(
    store: Store, shift: Shift, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its items succeed all the same, and say why they ran alone."""
    job_id = submit(store, *WORDS[:2])
    [cell] = store.cells(job_id)
    models.decoder(target_ref(cell), job_slice.drafting(cell), "")
    monkeypatch.delattr(KVCache, "merge")
    shift.advance()
    ended = list(store.results(job_id))
    assert {one.state for one in ended} == {ResultState.DONE}
    assert all("cannot be batched" in one.config["batch"]["why"] for one in ended)
