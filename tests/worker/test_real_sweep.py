"""Sweeps with the real engine on the smallest models: a flipped token is found, and models are loaded as predicted."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import mlx.core as mx
import pytest
from click.testing import CliRunner

from api_cli.cli import cli
from db.parting import Parting, parting
from db.records import EvaluationTotals, ResultRecord
from db.specs import CellSpec, Decoding, DrafterKind, Dtype, ItemSpec, JobKind, JobSpec
from db.store import Store
from worker.engine.build import Models
from worker.engine.decode import Decoder, prompt_ids
from worker.engine.divergence import TIE_GAP
from worker.engine.emit import Emitter
from worker.engine.model import Model
from worker.engine.values import Drafting, Generation, ModelRef, Request
from worker.jobs.slice import Shift

#: A draft of the mini family makes a small target.
PLAIN = CellSpec(target="mini-draft", dtype=Dtype.FLOAT32, decoding=Decoding(max_tokens=24))
LOOKUP = PLAIN.model_copy(update={"drafter": DrafterKind.LOOKUP, "k": 4})
TEXTS = ("Litwo, Ojczyzno moja", "Ile cię trzeba cenić", "ten tylko się dowie")
AT = 5

#: Which token of an answer becomes which: place and token, from the answer and the logits (n, V) at its places.
Flip = Callable[[Sequence[int], mx.array], tuple[int, int]]


class NoWakeups:
    """The test itself is the wake-up."""

    def ensure(self, job_id: str) -> None: ...


class FlippingModels(Models):
    """Real models whose drafted answers have one other token, as a defect in a drafter or a kernel would make it."""

    def __init__(self, flip: Flip) -> None:
        super().__init__()
        self._flip = flip

    def decoder(self, target: ModelRef, drafting: Drafting, *more: Any) -> Any:  # type: ignore[override]
        real = super().decoder(target, drafting, *more)
        return real if drafting.drafter == "off" else Flipping(real, self._model(target), self._flip)


class Flipping:
    """A decoder whose answers are flipped."""

    blank = False

    def __init__(self, real: Decoder, target: Model, flip: Flip) -> None:
        self._real, self._target, self._flip = real, target, flip
        self.config = real.config

    def recall(self, texts: Iterable[str]) -> None: ...

    def generate(self, request: Request, *, interrupted: Callable[[], bool]) -> Generation:
        made = self._real.generate(request, interrupted=interrupted)
        place, token = self._flip(made.tokens, logits_of(self._target, request, made.tokens))
        tokens = (*made.tokens[:place], token, *made.tokens[place + 1 :])
        emitter = Emitter(self._target.tokenizer, request.max_tokens)
        for each in tokens:
            emitter.push(each)
        return Generation(text=emitter.text, tokens=tokens, finish_reason=made.finish_reason, metrics=made.metrics)


def logits_of(target: Model, request: Request, tokens: Sequence[int]) -> mx.array:
    """The target's logits (n, V) at each of *tokens*, read in one go and without any cache."""
    prompt = prompt_ids(target, request)
    logits: mx.array = target.network(mx.array([[*prompt, *tokens]]))[0, len(prompt) - 1 : -1]
    return logits


def unlikely(tokens: Sequence[int], logits: mx.array) -> tuple[int, int]:
    """At place 5 the token that the target likes least."""
    return AT, int(mx.argmin(logits[AT]).item())


def nearest(tokens: Sequence[int], logits: mx.array) -> tuple[int, int]:
    """Where the two best tokens are nearest to each other, the second of them."""
    best = mx.sort(logits, axis=-1)
    place = int(mx.argmin(best[:, -1] - best[:, -2]).item())
    return place, int(mx.argsort(logits[place])[-2].item())


def swept(store: Store, models: Models, beside: CellSpec = LOOKUP) -> list[ResultRecord]:
    """The results under *beside* of a job with a plain cell and it."""
    items = tuple(ItemSpec(custom_id=f"i{at}", text=text) for at, text in enumerate(TEXTS))
    spec = JobSpec(kind=JobKind.EVALUATION, name="sweep", cells=(PLAIN, beside), items=items)
    job_id = store.submit(spec)
    assert Shift(store, models, NoWakeups(), "here/1-a").advance() == 2 * len(TEXTS)  # type: ignore[arg-type]
    return [one for one in store.results(job_id) if one.cell_position == 1]


def nocka(*arguments: str) -> str:
    ran = CliRunner().invoke(cli, list(arguments))
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def test_a_flipped_token_is_found_with_its_place_and_gap(store: Store) -> None:
    """Its gap is that of a reading without a cache; page, CSV, `show` and the job's totals call it DIFFERENT."""
    gaps: list[float] = []

    def flip(tokens: Sequence[int], logits: mx.array) -> tuple[int, int]:
        place, token = unlikely(tokens, logits)
        gaps.append(float((logits[place, tokens[place]] - logits[place, token]).item()))
        return place, token

    drafted = swept(store, FlippingModels(flip))

    assert [Parting(token=AT, gap=pytest.approx(gap, abs=1e-2), near_tie=False) for gap in gaps] == [
        parting(one.scores) for one in drafted
    ]
    assert min(gaps) > 1
    assert EvaluationTotals(compared=3, same=0, near_ties=0, model_loads=1) == store.job("last").evaluation
    said = f"DIFFERENT at token {AT}, gap {drafted[0].scores['logit_gap']:.3g}"
    assert said in nocka("report", "last") and f"NOT plain's text: {said}" in nocka("show", "last", "i0")
    rows = list(csv.DictReader(io.StringIO(nocka("results", "last", "--format", "csv"))))
    assert [("", ""), (str(AT), "False")] * 3 == [(row["first_other_token"], row["near_tie"]) for row in rows]
    assert "same text as plain in 0 of 3 (0 near-tie, 3 DIFFERENT)" in nocka("results", "last")


def test_a_flip_to_the_second_best_is_a_near_tie_where_the_two_are_near(store: Store) -> None:
    """Counted apart from what is different; `different` counts the rest."""
    drafted = swept(store, FlippingModels(nearest))
    found = [parting(one.scores) for one in drafted]
    near = [one for one in found if one is not None and one.gap is not None and one.gap <= TIE_GAP]

    assert near and [one.near_tie for one in found if one] == [one in near for one in found]
    status = json.loads(nocka("status", "last", "--json"))["evaluation"]
    assert (3, 0, len(near), 3 - len(near)) == tuple(
        status[name] for name in ("compared", "same", "near_ties", "different")
    )
    assert f"near-tie at token {near[0].token}, gap {near[0].gap:.3g}" in nocka("report", "last")
    assert "≈" in nocka("results", "last")


def test_an_answer_that_cannot_be_read_again_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is known to differ; by how little is not."""

    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    models = FlippingModels(unlikely)
    monkeypatch.setattr(models, "divergence", fail)
    drafted = swept(store, models)

    assert [0.0] * 3 == [one.scores["same_as_plain"] for one in drafted]
    assert [None] * 3 == [parting(one.scores) for one in drafted]


def test_what_is_plains_own_is_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losslessness costs a comparison of tokens where it holds."""
    models = Models()
    monkeypatch.setattr(models, "divergence", lambda *_: pytest.fail("read again"))

    assert [{"same_as_plain": 1.0}] * 3 == [one.scores for one in swept(store, models)]


def test_answers_decoded_together_are_held_against_those_decoded_alone(store: Store) -> None:
    """Each is plain's own text, or the place is a near-tie that the batch rounded otherwise."""
    together = swept(store, Models(), PLAIN.model_copy(update={"batch": 3}))

    assert all("same_as_plain" in one.scores for one in together)
    assert all(found is None or found.near_tie for found in (parting(one.scores) for one in together))
    assert "plain batch=3: same text as plain in" in nocka("results", "last")


def test_models_are_loaded_as_often_as_a_dry_run_says(store: Store) -> None:
    """Two targets with a draft each to load; the same sweep again finds the last target's models in memory."""
    grid = ("--target", "mini-draft", "--target", "mini-draft-polish", "--draft", "mini-draft-bytes", "--k", "2")
    sweep = ("sweep", *grid, "--data", "questions", "--limit", "1", "--max-tokens", "3")
    predicted = json.loads(nocka(*sweep, "--dry-run", "--json"))["model_loads"]
    shift = Shift(store, Models(), NoWakeups(), "here/1-a")  # type: ignore[arg-type]
    loads = []
    for asked in (sweep, ("sweep", *grid[2:], *sweep[1 + len(grid) :])):
        nocka(*asked)
        shift.advance()
        loads.append(json.loads(nocka("status", "last", "--json"))["evaluation"]["model_loads"])

    assert [4, 0] == loads and loads[0] == predicted
    first = json.loads(nocka("jobs", "--json"))[1]["id"]
    assert "4 model loads" in nocka("report", first)
