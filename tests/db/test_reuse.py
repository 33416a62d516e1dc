"""Nothing is paid twice: an answer is reused exactly where the same text would be generated again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from db.content import content
from db.records import Finished
from db.specs import CellSpec, Decoding, DrafterKind, Dtype, ItemSpec, JobKind, JobSpec, Message, Overrides, Translation
from db.status import JobState, ResultState
from db.store import Store

#: Of a model hub, so that nothing of it need be here.
HUB = "org/model"


def spec(*names: str, target: str = HUB, kind: JobKind = JobKind.GENERATION, **decoding: Any) -> JobSpec:
    items = tuple(ItemSpec(custom_id=name, text=f"Treść {name}") for name in names)
    return JobSpec(
        kind=kind, name="próba", cells=(CellSpec(target=target, decoding=Decoding(**decoding)),), items=items
    )


def run(store: Store, finished: Finished) -> list[str]:
    """Finish all that waits; the ids of the items."""
    ran = []
    while (claim := store.claim("mac/1")) is not None:
        assert store.finish(claim, finished)
        ran.append(claim.item.custom_id)
    return ran


class TestJobs:
    def test_the_same_submit_again_is_the_same_job(self, store: Store, finished: Finished) -> None:
        """While it waits and when it is done, whatever it is called; nothing is written."""
        first = store.submit_once(spec("a", "b"))
        assert (first.existed, first.reused) == (False, 0)
        waiting = store.submit_once(spec("a", "b").model_copy(update={"name": "inna", "priority": 5}))
        assert (waiting.job_id, waiting.existed) == (first.job_id, True)
        run(store, finished)
        done = store.submit_once(spec("a", "b"))
        assert (done.job_id, done.existed) == (first.job_id, True)
        assert len(store.jobs()) == 1

    def test_a_job_that_was_cancelled_or_failed_is_submitted_anew(self, store: Store) -> None:
        """It is of no use to whoever asks again."""
        cancelled = store.submit_once(spec("a")).job_id
        store.cancel(cancelled)
        failed = store.submit_once(spec("a")).job_id
        store.fail_job(failed, "model_not_loadable", "no such file")
        again = store.submit_once(spec("a"))
        assert not again.existed
        assert len({cancelled, failed, again.job_id}) == 3

    def test_force_is_a_new_job_without_any_reuse(self, store: Store, finished: Finished) -> None:
        """`submit` is what --force says."""
        first = store.submit_once(spec("a")).job_id
        run(store, finished)
        assert store.submit(spec("a")) != first
        assert run(store, finished) == ["a"]

    def test_another_reference_or_rejected_line_is_another_job_with_the_same_answers(
        self, store: Store, finished: Finished
    ) -> None:
        """They do not change the text."""
        store.submit_once(spec("a"))
        run(store, finished)
        [item] = spec("a").items
        other = spec("a").model_copy(update={"items": (item.model_copy(update={"reference": "wzór"}),)})
        again = store.submit_once(other)
        assert (again.existed, again.reused) == (False, 1)


class TestAnswers:
    def test_a_folder_with_one_more_file_runs_that_file_only(self, store: Store, finished: Finished) -> None:
        """The others are copied whole, marked, and counted in no total; whoever copies a copy names the original."""
        first = store.submit_once(spec("a", "b")).job_id
        run(store, finished)
        more = store.submit_once(spec("a", "b", "c"))
        assert (more.existed, more.reused) == (False, 2)
        assert run(store, finished) == ["c"]
        copied, original = store.result(more.job_id, "a")[0], store.result(first, "a")[0]
        assert (copied.state, copied.attempts, copied.reused_from) == (ResultState.DONE, 0, f"{first}/a")
        for name in ("text", "finish_reason", "metrics", "config", "completion_tokens", "tokens_per_s"):
            assert getattr(copied, name) == getattr(original, name)
        record = store.job(more.job_id)
        assert (record.state, record.counts.done, record.reused) == (JobState.DONE, 3, 2)
        assert (record.completion_tokens, record.busy_s) == (5, 2.5)

        fewer = store.submit_once(spec("c", "a"))
        assert fewer.reused == 2
        assert store.job(fewer.job_id).state is JobState.DONE
        origins = [result.reused_from for result in store.results(fewer.job_id)]
        assert origins == [f"{more.job_id}/c", f"{first}/a"]

    def test_only_finished_answers_are_reused(self, store: Store, finished: Finished) -> None:
        """What failed, waits or runs is run in the new job."""
        store.submit_once(spec("a", "b", "c"))
        taken = store.claim("mac/1")
        assert taken is not None and store.fail(taken, "generation_failed", "boom")
        assert store.claim("mac/1") is not None
        assert store.submit_once(spec("a", "b", "c", "d")).reused == 0

    def test_an_evaluation_is_always_new(self, store: Store, finished: Finished) -> None:
        """It neither takes answers over nor gives any: it is there for its figures."""
        store.submit_once(spec("a", kind=JobKind.EVALUATION))
        run(store, finished)
        again = store.submit_once(spec("a", kind=JobKind.EVALUATION))
        assert not again.existed
        assert run(store, finished) == ["a"]
        assert store.submit_once(spec("a")).reused == 0


def hash_of(item: ItemSpec, **cell: Any) -> str:
    cell.setdefault("target", HUB)
    job = JobSpec(kind=JobKind.GENERATION, name="n", cells=(CellSpec(**cell),), items=(item,))
    hashes = content(job)
    assert hashes is not None
    return hashes.answers[0]


ITEM = ItemSpec(custom_id="a", messages=(Message(role="user", content="Streść: ala ma kota"),))
WARM = {"decoding": Decoding(temperature=0.7)}


@pytest.mark.parametrize(
    ("item", "cell"),
    [
        (ITEM.model_copy(update={"messages": (Message(role="user", content="Streść: ala ma psa"),)}), {}),
        (ITEM.model_copy(update={"messages": (Message(role="system", content="Streść: ala ma kota"),)}), {}),
        (ItemSpec(custom_id="a", text="Streść: ala ma kota"), {}),
        (ITEM.model_copy(update={"overrides": Overrides(max_tokens=5)}), {}),
        (ITEM, {"target": "org/other"}),
        (ITEM, {"target_revision": "abc"}),
        (ITEM, {"dtype": Dtype.FLOAT16}),
        (ITEM, {"decoding": Decoding(max_tokens=5)}),
        (ITEM, {"decoding": Decoding(repetition_penalty=1.1)}),
        (ITEM, {"decoding": Decoding(stop=("x",))}),
        (ITEM, WARM),
    ],
)
def test_whatever_changes_the_text_changes_the_hash(item: ItemSpec, cell: dict[str, Any]) -> None:
    """Changed options never reuse."""
    assert hash_of(item, **cell) != hash_of(ITEM)


@pytest.mark.parametrize("option", [{"seed": 1}, {"top_p": 0.5}, {"top_k": 5}, {"min_p": 0.1}, {"temperature": 0.8}])
def test_chance_counts_where_there_is_some(option: dict[str, Any]) -> None:
    """Seed, filters and the item's id shape a sampled answer and mean nothing to a greedy one."""
    assert hash_of(ITEM, decoding=Decoding(**{"temperature": 0.7, **option})) != hash_of(ITEM, **WARM)
    if "temperature" not in option:
        assert hash_of(ITEM, decoding=Decoding(**option)) == hash_of(ITEM)
    renamed = ITEM.model_copy(update={"custom_id": "b"})
    assert hash_of(renamed, **WARM) != hash_of(ITEM, **WARM)
    assert hash_of(renamed) == hash_of(ITEM)


def test_a_draft_is_no_part_of_the_answer() -> None:
    """Speculation is lossless. An option said by the item or by the job is the same option."""
    drafted = hash_of(ITEM, draft="org/draft", drafter=DrafterKind.CROSS, translation=Translation.CONTEXT, k=3)
    assert drafted == hash_of(ITEM)
    said = ITEM.model_copy(update={"overrides": Overrides(max_tokens=5)})
    assert hash_of(said) == hash_of(ITEM, decoding=Decoding(max_tokens=5))


def test_a_local_model_is_known_by_its_files(tmp_path: Path) -> None:
    """One that was trained anew in the same folder is another model; one that is not here is never reused."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"one")
    before = hash_of(ITEM, target=str(tmp_path))
    assert hash_of(ITEM, target=str(tmp_path)) == before
    weights.write_bytes(b"three")
    assert hash_of(ITEM, target=str(tmp_path)) != before
    assert content(spec("a", target=str(tmp_path / "nowhere"))) is None
