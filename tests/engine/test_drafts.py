"""A draft's troubles are its own: a short context, a template that refuses, a vocabulary that barely overlaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest

from tests.engine import toys
from tests.engine.conftest import mini
from worker.engine.build import Models, _model_drafter
from worker.engine.context import Context
from worker.engine.decode import Decoder
from worker.engine.drafters import intersect
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.intersect import IntersectDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.errors import DraftMismatch
from worker.engine.model import Model
from worker.engine.values import Drafting, Request, Sampling, Turn

TEXT = "abcdefghij" * 4
WARM = Sampling(temperature=0.9, seed=2)


@pytest.fixture(scope="module")
def toy() -> Model:
    return toys.toy_llama(toys.toy_tokenizer(), seed=1)


@pytest.fixture(autouse=True)
def _small_overlap_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intersect, "MIN_OVERLAP_TOKENS", 4)


@pytest.fixture(autouse=True)
def _checked_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every read, cache and tokens agree, and no context holds more than its model can read (a word at least)."""
    append = Context.append

    def checked(self: Context, ids: Sequence[int]) -> object:
        logits = append(self, ids)
        self.check()
        assert len(self) - self.skipped <= max(8, self.model.context_tokens)
        return logits

    monkeypatch.setattr(Context, "append", checked)


def same(context_tokens: int) -> Model:
    """The toy itself as a draft, so that it is right wherever it reads the whole text."""
    return dataclasses.replace(toys.toy_llama(toys.toy_tokenizer(), seed=1), context_tokens=context_tokens)


def paired(context_tokens: int) -> Model:
    """A draft with pairs of letters as one token."""
    tokenizer = toys.toy_tokenizer("jihgfedcba", toys.PAIRS)
    return dataclasses.replace(toys.toy_llama(tokenizer, seed=3), context_tokens=context_tokens)


MODEL_DRAFTERS: dict[str, Callable[[Model, int], Drafter]] = {
    "neural": lambda toy, size: NeuralDrafter(same(size)),
    "direct": lambda toy, size: CrossDrafter(toy.tokenizer, paired(size), "direct"),
    "context": lambda toy, size: CrossDrafter(toy.tokenizer, paired(size), "context"),
    "intersect": lambda toy, size: IntersectDrafter(toy.tokenizer, paired(size)),
}


@pytest.mark.parametrize("size", [1, 2, 16, 25, 45])
@pytest.mark.parametrize("name", MODEL_DRAFTERS)
def test_a_draft_with_a_short_context_reads_the_end(toy: Model, name: str, size: int) -> None:
    """A draft that cannot read the prompt, or all of the answer, still drafts; the target's answer stays as it is."""
    request = Request(custom_id="a", text=TEXT, max_tokens=40, sampling=WARM)
    plain = Decoder(toy, None, 0, {}).generate(request)
    drafted = Decoder(toy, MODEL_DRAFTERS[name](toy, size), 3, {}).generate(request)

    assert plain.tokens == drafted.tokens
    assert (size >= 2) == (drafted.metrics.draft_tokens > 0)


def test_a_draft_in_step_is_right_before_and_after_its_window_moves(toy: Model) -> None:
    """With a context that the text outgrows, the target's own copy draws with the right noise at every position.

    It misses only where the text it no longer reads matters: rarely for a model of one layer.
    """
    request = Request(custom_id="a", text=TEXT, max_tokens=60, sampling=Sampling(temperature=3.0, seed=4))
    whole = Decoder(toy, NeuralDrafter(same(4096)), 3, {}).generate(request).metrics
    short = Decoder(toy, NeuralDrafter(same(64)), 3, {}).generate(request).metrics

    assert whole.acceptance_rate == 1.0
    assert short.acceptance_rate is not None and short.acceptance_rate > 0.6


@pytest.mark.parametrize("name", [name for name in MODEL_DRAFTERS if name != "neural"])
def test_a_draft_whose_template_refuses_reads_the_bare_text(toy: Model, name: str) -> None:
    """A draft without a chat template serves a target that has one."""
    talking = dataclasses.replace(toy, tokenizer=toys.toy_tokenizer())
    talking.tokenizer._wrapped.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}ab"
    request = Request(custom_id="a", turns=(Turn(role="user", content="cdcd"),), max_tokens=20, sampling=WARM)
    plain = Decoder(talking, None, 0, {}).generate(request)
    drafted = Decoder(talking, MODEL_DRAFTERS[name](talking, 4096), 3, {}).generate(request)

    assert plain.tokens == drafted.tokens
    assert drafted.metrics.draft_tokens > 0


@pytest.mark.parametrize("name", MODEL_DRAFTERS)
def test_cancelled_anywhere_and_used_again(toy: Model, name: str) -> None:
    """Stopped at any of its yield points, a generation is a prefix of the whole one, and the next one is not harmed."""
    decoder = Decoder(toy, MODEL_DRAFTERS[name](toy, 4096), 3, {})
    request = Request(custom_id="a", text="abcdef", max_tokens=16, sampling=WARM)
    whole = Decoder(toy, None, 0, {}).generate(request).tokens
    for patience in range(30):
        asked = iter(range(1000))
        stopped = decoder.generate(request, interrupted=lambda asked=asked, patience=patience: next(asked) >= patience)
        assert whole[: len(stopped.tokens)] == stopped.tokens
        if stopped.finish_reason != "interrupted":
            break
        assert decoder.generate(request).tokens == whole
    assert stopped.tokens == whole and patience > 4


@dataclasses.dataclass
class Failing:
    """Proposes through *drafter* and fails in the round *at*."""

    drafter: Drafter
    at: int

    def __getattr__(self, name: str) -> object:
        return getattr(self.drafter, name)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> object:
        self.at -= 1
        if self.at == 0:
            raise RuntimeError("out of memory")
        return self.drafter.propose(tokens, k, limit)


@pytest.mark.parametrize("name", MODEL_DRAFTERS)
def test_a_failure_in_a_round_harms_no_later_request(toy: Model, name: str) -> None:
    """After an exception in the middle of a round the same drafter serves the next request as if nothing had been."""
    drafter = MODEL_DRAFTERS[name](toy, 4096)
    request = Request(custom_id="a", text="abcdef", max_tokens=16, sampling=WARM)
    whole = Decoder(toy, None, 0, {}).generate(request).tokens
    for at in (1, 2):
        with pytest.raises(RuntimeError, match="out of memory"):
            Decoder(toy, Failing(drafter, at), 3, {}).generate(request)  # type: ignore[arg-type]
        assert Decoder(toy, drafter, 3, {}).generate(request).tokens == whole


def test_intersect_says_only_what_both_have(toy: Model) -> None:
    """Each proposal is tokens of the draft's own, none of them a pair, which the target lacks; the end is the end."""
    drafter = IntersectDrafter(toy.tokenizer, paired(4096))
    request = Request(custom_id="a", text="abcdef", max_tokens=30, sampling=Sampling(temperature=2.0))
    generation = Decoder(toy, drafter, 4, {}).generate(request)
    read = drafter._reading.context.tokens[len("abcdef") :]
    table = drafter._draft.tokenizer.table

    assert 0 < generation.metrics.accepted < generation.metrics.proposed
    assert drafter.overlap == pytest.approx(10 / 16)
    assert all(len(table[token_id]) == 1 or token_id == drafter._draft.tokenizer.end_of_turn for token_id in read[-4:])


def test_intersect_drafts_as_its_target_would_where_they_agree(toy: Model) -> None:
    """The target's own weights with its tokens in another order draw every token with the target's noise."""
    drafter = IntersectDrafter(toy.tokenizer, same(4096))
    request = Request(custom_id="a", text="abcdef", max_tokens=30, sampling=Sampling(temperature=2.0, top_p=0.9))

    assert Decoder(toy, drafter, 4, {}).generate(request).metrics.acceptance_rate == 1.0


def test_a_result_says_how_much_of_the_draft_could_be_used(models: Models) -> None:
    """The share of its tokens that intersect left the draft stands in the configuration; others have no such share."""
    bytes_draft = mini("mini-draft-bytes")
    found = models.decoder(mini("mini-target"), Drafting(drafter="intersect", draft=bytes_draft, k=2)).config
    other = models.decoder(mini("mini-target"), Drafting(drafter="cross", draft=bytes_draft, k=2)).config

    assert 0.1 < found["overlap"] < 1
    assert other["overlap"] is None


def test_a_tiny_overlap_is_refused(toy: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few tokens in common, in number or share, and the message says how many there are."""
    foreign = toys.toy_llama(toys.toy_tokenizer("klmnopqrstuvwxyza"))
    monkeypatch.setattr(intersect, "MIN_OVERLAP_TOKENS", 1)
    with pytest.raises(DraftMismatch, match=r"shares only 1 of its 17 tokens \(5\.9%\)"):
        IntersectDrafter(toy.tokenizer, foreign)
    monkeypatch.setattr(intersect, "MIN_OVERLAP_TOKENS", 256)
    with pytest.raises(DraftMismatch, match=r"shares only 10 of its 16 tokens"):
        IntersectDrafter(toy.tokenizer, paired(4096))


@pytest.mark.parametrize("kind", ["neural", "cross", "intersect"])
def test_a_draft_that_cannot_be_rewound_is_refused(toy: Model, kind: str) -> None:
    """A state-space draft is refused with the reason, whatever would use it."""
    with pytest.raises(DraftMismatch, match="the ArraysCache of a layer cannot be rewound"):
        _model_drafter(toy, toys.recurrent(), kind)
