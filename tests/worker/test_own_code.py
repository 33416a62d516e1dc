"""Code that a model's files bring along is run for a model that was named, and for no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import worker
from db.specs import CellSpec, Decoding, DrafterKind, ItemSpec, JobKind, JobSpec
from db.status import JobState
from db.store import Store
from worker.engine.build import Models
from worker.jobs.slice import Shift

MINI = Path(worker.__file__).parent / "mini" / "mini-draft"
#: By the file that names it: what it says there, and the code.
CODE = {
    "tokenizer_config.json": (
        {"auto_map": {"AutoTokenizer": [None, "own.OwnTokenizer"]}},
        "from transformers import PreTrainedTokenizerFast\nclass OwnTokenizer(PreTrainedTokenizerFast): ...\n",
    ),
    "config.json": ({"model_file": "own.py"}, "from mlx_lm.models.llama import Model, ModelArgs\n"),
}


class NoWakeups:
    """The test itself is the wake-up."""

    def ensure(self, job_id: str) -> None: ...


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file that the code of a model makes."""
    return tmp_path / "ran"


@pytest.fixture(params=CODE)
def model(request: pytest.FixtureRequest, tmp_path: Path, ran: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model with code of its own in its folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = Path(shutil.copytree(MINI, tmp_path / "model"))
    named, code = CODE[request.param]
    config = folder / request.param
    config.write_text(json.dumps(json.loads(config.read_text()) | named))
    (folder / "own.py").write_text(f"{code}open({str(ran)!r}, 'w').close()\n")
    return folder


def run(store: Store, cell: CellSpec) -> str:
    """Submit one item under *cell* and work; the job's id."""
    item = ItemSpec(custom_id="a", text="Litwo!")
    job_id = store.submit(JobSpec(kind=JobKind.GENERATION, name="a", cells=(cell,), items=(item,)))
    Shift(store, Models(), NoWakeups(), "here/1-a").advance()  # type: ignore[arg-type]
    return job_id


def test_nothing_of_it_is_run_for_a_model_that_was_not_named(store: Store, model: Path, ran: Path) -> None:
    """The job fails and says what the model wanted, that nothing was run, and what to type."""
    cell = CellSpec(target=str(model), decoding=Decoding(max_tokens=2))

    job = store.job(run(store, cell))

    assert (JobState.FAILED, "model_not_loadable") == (job.state, job.error_code)
    assert f"{model} wants to run code of its own (own." in str(job.error_message)
    assert "nothing of it was run" in str(job.error_message)
    assert f"--trust-remote-code {model}" in str(job.error_message)
    assert not ran.exists()


def test_it_is_run_for_the_model_that_was_named(store: Store, model: Path, ran: Path) -> None:
    """And the result's configuration says so."""
    cell = CellSpec(target=str(model), trust_remote_code=(str(model),), decoding=Decoding(max_tokens=2))

    job_id = run(store, cell)

    assert store.job(job_id).counts.done == 1, store.job(job_id).error_message
    assert ran.exists()
    (result,) = store.results(job_id)
    assert result.config["target"]["trust_remote_code"] is True


def test_the_draft_is_not_trusted_with_the_target(store: Store, model: Path, ran: Path) -> None:
    """A name stands for one model."""
    how = {"drafter": DrafterKind.NEURAL, "k": 2}
    cell = CellSpec(target=str(MINI), draft=str(model), trust_remote_code=(str(MINI),), **how)  # type: ignore[arg-type]

    assert store.job(run(store, cell)).state is JobState.FAILED
    assert not ran.exists()
