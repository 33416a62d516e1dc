"""The smallest set of claims that kills every mutant: the loop, its ends, its caches, its positions."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence

import pytest

from tests.engine.conftest import FILTERED, GREEDY, TEXTS, WARM, ask, mini
from tests.engine.liars import AlwaysRight, Silent, SometimesWrong
from worker.engine.context import Context
from worker.engine.decode import Decoder
from worker.engine.drafters.base import Drafter
from worker.engine.drafters.cross import CrossDrafter
from worker.engine.drafters.neural import NeuralDrafter
from worker.engine.model import Model, load
from worker.engine.sampling import Sampler
from worker.engine.values import Draft, Request, Sampling

#: A penalty that changes almost every greedy choice, so that a forgotten token shows.
HARSH = Sampling(repetition_penalty=4.0)


@pytest.fixture(scope="module")
def small() -> Model:
    """The fastest model of the family, here as a target."""
    return load(mini("mini-draft"))


@pytest.fixture(autouse=True)
def _checked_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """After every rewind, cache and tokens agree in every layer."""
    rewind = Context.rewind

    def checked(self: Context, length: int) -> None:
        rewind(self, length)
        self.check()

    monkeypatch.setattr(Context, "rewind", checked)


def slowly(target: Model, request: Request) -> list[int]:
    """The slow obvious loop: read everything anew for each token."""
    prompt = target.tokenizer.conversation(request.turns or ())
    sampler = Sampler(request.sampling, request.custom_id, target.vocab_size)
    tokens: list[int] = []
    while len(tokens) < request.max_tokens:
        history = [*prompt, *tokens]
        logits = Context(target).append(history)[-1:]
        token = int(sampler.choose(logits, len(history), sampler.seen(history)).item())  # type: ignore[arg-type]
        if token in target.tokenizer.eos_ids:
            break
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED, HARSH], ids=["greedy", "warm", "filtered", "harsh"])
def test_equals_the_slow_loop(small: Model, sampling: Sampling) -> None:
    """Plain, always right and sometimes wrong: all emit what reading everything anew for each token gives."""
    for text in TEXTS[:3]:
        request = ask(text, sampling, max_tokens=18)
        truth = slowly(small, request)

        assert truth == list(Decoder(small, None, 0, {}).generate(request).tokens)
        for liar in (AlwaysRight, SometimesWrong, Silent):
            drafter = liar(truth, small.vocab_size)
            assert truth == list(Decoder(small, drafter, 5, {}).generate(request).tokens), liar


def test_end_of_turn_inside_an_accepted_block(small: Model) -> None:
    """What was accepted behind an end of turn is not emitted."""
    truth = slowly(small, ask(TEXTS[0], WARM, max_tokens=12))
    tokenizer = copy.copy(small.tokenizer)
    tokenizer.eos_ids = frozenset({truth[6]})
    ending = dataclasses.replace(small, tokenizer=tokenizer)
    generation = Decoder(ending, AlwaysRight(truth, small.vocab_size), 9, {}).generate(ask(TEXTS[0], WARM, 12))

    assert truth[: truth.index(truth[6])] == list(generation.tokens)
    assert "stop" == generation.finish_reason


def test_stop_string_inside_an_accepted_block(small: Model) -> None:
    """A stop string cuts the text before it, with a drafter as without."""
    request = ask(TEXTS[0], WARM, max_tokens=24)
    truth = slowly(small, request)
    text = small.tokenizer.decode(truth)
    request = dataclasses.replace(request, stop=(text[10:14], "nie ma tego"))
    plain = Decoder(small, None, 0, {}).generate(request)
    drafted = Decoder(small, AlwaysRight(truth, small.vocab_size), 9, {}).generate(request)

    assert text[: text.index(text[10:14])] == plain.text == drafted.text
    assert "stop" == plain.finish_reason == drafted.finish_reason
    assert plain.tokens == drafted.tokens


def test_max_tokens_inside_an_accepted_block(small: Model) -> None:
    """No more tokens than asked for, whatever was proposed."""
    truth = slowly(small, ask(TEXTS[0], WARM, max_tokens=12))
    for count in (1, 2, 7):
        request = ask(TEXTS[0], WARM, count)
        generation = Decoder(small, AlwaysRight(truth, small.vocab_size), 9, {}).generate(request)

        assert truth[:count] == list(generation.tokens)
        assert "length" == generation.finish_reason


def test_interruption_keeps_what_is_certain(small: Model) -> None:
    """An interrupted generation holds a prefix of the whole one."""
    truth = slowly(small, ask(TEXTS[0], WARM, max_tokens=18))
    for patience in (0, 1, 2, 4):
        asked = iter(range(100))
        drafter = SometimesWrong(truth, small.vocab_size)
        generation = Decoder(small, drafter, 3, {}).generate(
            ask(TEXTS[0], WARM, 18), interrupted=lambda asked=asked, patience=patience: next(asked) >= patience
        )

        assert "interrupted" == generation.finish_reason
        assert truth[: len(generation.tokens)] == list(generation.tokens)
        assert len(generation.tokens) < len(truth)


@dataclasses.dataclass
class Watched:
    """A drafter under observation: *check* is called after each proposal with the committed tokens."""

    drafter: Drafter
    check: Callable[[Sequence[int]], None]
    rounds: int = 0

    def start(self, request: Request, prompt: Sequence[int], sampler: Sampler, interrupted: Callable[[], bool]) -> None:
        self.drafter.start(request, prompt, sampler, interrupted)

    def propose(self, tokens: Sequence[int], k: int, limit: int) -> Draft:
        draft = self.drafter.propose(tokens, k, limit)
        if draft.draft_tokens:
            self.check(tokens)
            self.rounds += 1
        return draft

    def finish(self, tokens: Sequence[int]) -> None:
        self.drafter.finish(tokens)


def test_neural_draft_reads_what_is_committed(target: Model, small: Model) -> None:
    """After every proposal the draft's context begins with the committed tokens, and nothing else before its own."""
    neural = NeuralDrafter(small)

    def check(tokens: Sequence[int]) -> None:
        assert list(tokens) == neural._context.tokens[: len(tokens)]

    watched = Watched(neural, check)
    for text in TEXTS:
        Decoder(target, watched, 4, {}).generate(ask(text, WARM, 24))
    assert watched.rounds >= 20


@pytest.mark.parametrize("name", ["mini-draft-bytes", "mini-draft-polish"])
def test_cross_draft_reads_what_is_committed(target: Model, name: str) -> None:
    """After every proposal the draft has read the committed text, byte for byte, and only its own words behind it."""
    cross = CrossDrafter(target.tokenizer, load(mini(name)), "context")
    tokenizer = cross._draft.tokenizer

    def check(tokens: Sequence[int]) -> None:
        prefix = len(tokenizer.conversation(request.turns or ()))
        prompt = len(target.tokenizer.conversation(request.turns or ()))
        committed = target.tokenizer.spell(tokens[prompt:])
        read = tokenizer.spell(cross._context.tokens[prefix:])
        assert read.startswith(committed[: len(committed) - len(cross._reading.pending)])

    watched = Watched(cross, check)
    for text in TEXTS:
        request = ask(text, WARM, 24)
        Decoder(target, watched, 3, {}).generate(request)
    assert watched.rounds >= 20
