"""The real worker builds an n-gram model, and what it remembers of a cell comes back after a restart."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

import worker
from db.settings import Settings
from db.specs import CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, NgramTask
from db.status import JobState
from db.store import Store
from tests.worker.echo import Journal
from tests.worker.helpers import Start, until
from worker.engine.build import Models
from worker.engine.model import load_tokenizer_of
from worker.engine.ngram_file import NgramFile, table_hash
from worker.engine.values import ModelRef
from worker.jobs.corpus import CorpusError, texts
from worker.jobs.slice import Shift, Unwanted, _Progress
from worker.wakeups import Wakeups, connect

MINI = Path(worker.__file__).parent / "mini" / "mini-draft"
RHYME = "Wlazł kotek na płotek i mruga, ładna to piosenka, niedługa.\n"


def wake(settings: Settings, job_id: str) -> None:
    with connect(settings.redis_url) as client:
        Wakeups(client).ensure(job_id)


def ngram_job(target: Path, corpora: list[Path], output: Path) -> JobSpec:
    return JobSpec(
        kind=JobKind.NGRAM,
        name=output.name,
        cells=(CellSpec(target=str(target)),),
        items=(ItemSpec(custom_id=output.name, text=str(output)),),
        task=NgramTask(corpora=tuple(map(str, corpora)), output=str(output)),
    )


def test_the_worker_builds_a_file(settings: Settings, store: Store, broker: redis.Redis, tmp_path: Path) -> None:
    """Text, JSONL and CSV go in; the file is tied to the target's tokenizer and says what the texts say."""
    corpora = [tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "c.csv"]
    corpora[0].write_text(RHYME * 50, "utf-8")
    corpora[1].write_text(json.dumps({"text": RHYME}) + "\n", "utf-8")
    corpora[2].write_text(f'n,text\n1,"{RHYME}"\n', "utf-8")
    job_id = store.submit(ngram_job(MINI, corpora, tmp_path / "o.ngram"))
    failing = store.submit(ngram_job(MINI, [tmp_path / "gone.txt"], tmp_path / "p.ngram"))
    with connect(settings.redis_url) as client:
        assert Shift(store, Models(), Wakeups(client), "here/1").advance() == 2

    (result,) = store.results(job_id)
    assert store.job(job_id).state is JobState.DONE
    assert (result.metrics["progress"], result.text and str(tmp_path / "o.ngram") in result.text) == (1.0, True)
    tokenizer = load_tokenizer_of(ModelRef(source=str(MINI)))
    model = NgramFile(tmp_path / "o.ngram")
    assert model.tokenizer_hash == table_hash(tokenizer.table)
    ids = tokenizer.encode(RHYME)
    guess = model.guess(ids[:4])
    assert guess is not None and (guess.token, guess.order, guess.count) == (ids[4], 3, 52)

    (failed,) = store.results(failing)
    assert (failed.error_code, "gone.txt" in (failed.error_message or "")) == ("ngram_not_built", True)
    assert not (tmp_path / "p.ngram").exists()


def test_a_restarted_worker_recalls_the_cell_s_answers(
    settings: Settings, store: Store, broker: redis.Redis, start: Start
) -> None:
    """Once for each cell, from the store, the oldest first; another job of equal settings begins with nothing."""
    cell = CellSpec(target="echo", drafter=DrafterKind.SUFFIX, k=4)

    def submit(*words: str) -> str:
        items = tuple(ItemSpec(custom_id=word[:4], text=word) for word in words)
        return store.submit(JobSpec(kind=JobKind.GENERATION, name="t", cells=(cell,), items=items))

    first = submit("raz", "dwa", "x " * 200)
    wake(settings, first)
    journal = Journal(settings.home)
    process = start("echo_worker.py")
    until(lambda: journal.count("committed") == 2 and journal.count("begin") == 3)
    process.signal(signal.SIGKILL)
    process.wait()
    second = submit("trzy")
    wake(settings, second)
    start("echo_worker.py")
    until(lambda: store.job(second).finished_at is not None and store.job(first).finished_at is not None)

    assert ["nothing", "raz+dwa", "nothing"] == [said for event, said in journal.read() if event == "recalled"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", '{"text": "tajne"}\n{"tekst": "tajne"}\n', "a.jsonl:2: no text under 'text'"),
        ("a.jsonl", '{"text": "tajne"\n', "a.jsonl:1: not JSON"),
        ("a.csv", "n,tekst\n1,tajne\n", "a.csv: no column 'text'"),
    ],
)
def test_a_record_without_a_text_is_named_and_not_quoted(tmp_path: Path, name: str, content: str, said: str) -> None:
    """File, line and what to type."""
    path = tmp_path / name
    path.write_text(content, "utf-8")
    with pytest.raises(CorpusError) as caught:
        list(texts(path, "text"))
    assert said in str(caught.value) and "tajne" not in str(caught.value)


def test_plain_text_is_cut_at_line_ends_and_none_is_lost(tmp_path: Path) -> None:
    """Bad bytes become U+FFFD, a byte order mark goes, and what was read adds up to the file."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + ("źdźbło\n" * 20_000).encode() + b"\xff")
    found = list(texts(path, "text"))

    assert "".join(text for text, _ in found) == "źdźbło\n" * 20_000 + "\N{REPLACEMENT CHARACTER}"
    assert all(text.endswith("\n") for text, _ in found[:-1]) and len(found) > 3
    assert found[-1][1] == path.stat().st_size


def test_a_build_that_nobody_wants_stops(tmp_path: Path, store: Store) -> None:
    """The progress of a build is where it is told to stop, and it is noted with its result."""
    store.submit(ngram_job(tmp_path, [tmp_path / "a"], tmp_path / "o"))
    claim = store.claim("here/1")
    assert claim is not None
    wanted: Callable[[], bool] = iter([False, True]).__next__
    progress = _Progress(store, claim, wanted)
    progress(0.25)
    (result,) = store.results(claim.job_id)
    assert result.metrics == {"progress": 0.25}
    with pytest.raises(Unwanted):
        progress(0.5)
