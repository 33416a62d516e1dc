"""What prompts begin with in common is read once, and nobody can tell from the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine import toys
from tests.engine.conftest import FILTERED, GREEDY, WARM, mini
from tests.engine.test_batch import together
from tests.engine.texts import few
from worker.engine import context as context_module
from worker.engine.batch import Batch
from worker.engine.build import Models
from worker.engine.context import Context, Window
from worker.engine.decode import Decoder, prompt_ids
from worker.engine.model import Model
from worker.engine.prefix import LEAST_TOKENS, MOST_COPIES, Held, Prefixes, common, plan
from worker.engine.values import Drafting, Request, Sampling, Turn

ROOM = 1 << 28
TARGET, OTHER = mini("mini-draft"), mini("mini-draft-polish")
RULES = "Odpowiadaj po polsku, krótko i rzeczowo, w trzech zdaniach. Nie zmyślaj liczb ani nazwisk."
QUESTIONS = ["Jak otworzyć arkusz?", "Jak zamknąć okno?", "Wymień trzy rzeki: Wisła, Odra"]

#: Readings that often begin alike, for long or for short.
readings = st.lists(st.sampled_from([[0] * 17, [1] * 12, [0] * 3, [1]]), max_size=5).map(
    lambda parts: [token for part in parts for token in part]
)


def asked(rules: str, question: str, sampling: Sampling = GREEDY, max_tokens: int = 12) -> Request:
    turns = (Turn(role="system", content=rules), Turn(role="user", content=question))
    return Request(custom_id=question[:8], turns=turns, sampling=sampling, max_tokens=max_tokens)


def remembering(target: Model, room_bytes: int = ROOM) -> tuple[Decoder, Prefixes]:
    """A plain decoder with the beginnings of one cell."""
    decoder, prefixes = Decoder(target, None, 0, {}), Prefixes(target, lambda: room_bytes)
    decoder.prefixes = prefixes.of("cell")
    return decoder, prefixes


def alone(target: Model, request: Request) -> tuple[int, ...]:
    return Decoder(target, None, 0, {}).generate(request).tokens


@few
@given(ids=readings, held=st.lists(st.tuples(readings, st.integers(0, 40), st.booleans()), max_size=5))
def test_a_plan_begins_with_the_longest_beginning_that_can_be_had(
    ids: list[int], held: list[tuple[list[int], int, bool]]
) -> None:
    """What it reuses is the prompt's own, can be rewound to, and nothing held has more; no second copy of the same."""
    every = [Held(tokens, min(earliest, len(tokens)), stays) for tokens, earliest, stays in held]
    made = plan(ids, every)
    usable = [length if (length := common(ids, one.tokens)) >= one.earliest else 0 for one in every]

    assert made.reused in (0, max(usable, default=0)) and (made.source is None) == (made.reused == 0)
    if made.source is not None:
        assert list(ids[: made.reused]) == list(every[made.source].tokens[: made.reused])
        assert every[made.source].earliest <= made.reused >= LEAST_TOKENS
    else:
        assert max(usable, default=0) < LEAST_TOKENS
    if made.keep_at is not None:
        assert made.keep_at == max(common(ids, one.tokens) for one in every) >= made.reused
        staying = [length for length, one in zip(usable, every, strict=True) if one.stays]
        assert made.keep_at - max(staying, default=0) >= LEAST_TOKENS


def test_the_second_of_a_cell_reads_only_what_differs(models: Models) -> None:
    """The first reads all; from then on exactly the common beginning is not read again, and a third finds a copy."""
    target = models._model(TARGET)
    decoder, prefixes = remembering(target)
    requests = [asked(RULES, question) for question in QUESTIONS]
    prompts = [prompt_ids(target, request) for request in requests]
    shared = common(prompts[0], prompts[1])
    assert len(prompts[1]) > shared > 2 * LEAST_TOKENS

    metrics = [decoder.generate(request).metrics for request in requests]

    assert [0, shared] == [one.reused_tokens for one in metrics[:2]]
    assert metrics[2].reused_tokens >= shared - 2
    assert [one.prompt_tokens for one in metrics] == [len(prompt) for prompt in prompts]
    assert [shared] == [len(context) for context in copies(prefixes)]


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
def test_the_answers_are_those_of_reading_everything(models: Models, sampling: Sampling) -> None:
    """Two instructions in turn, a question asked again, one that begins another, an instruction alone."""
    again = [asked(RULES, QUESTIONS[0], dataclasses.replace(sampling, seed=seed)) for seed in (1, 2)]
    requests = [
        *(asked(rules, question, sampling) for question in QUESTIONS for rules in (RULES, RULES[:40], "Tak.")),
        *again,
        asked(RULES, QUESTIONS[0] + " A jak zamknąć?", sampling),
        asked(RULES, "", sampling),
    ]
    target, reused = models._model(TARGET), 0
    for request in requests:
        made = models.decoder(TARGET, Drafting(), f"cell {sampling}").generate(request)
        reused += made.metrics.reused_tokens

        assert alone(target, request) == made.tokens
    assert reused > 5 * LEAST_TOKENS


PIECES = ["abcdefghij" * 2, "jihgfedcba" * 2, "ab" * 9, "c", "dd"]


def content(context: Context) -> list[np.ndarray]:
    """What it holds, bit for bit."""
    return [np.array(part) for layer in context._cache for part in (layer.keys, layer.values)]


def copies(prefixes: Prefixes) -> list[Context]:
    return [kept.context for kept in prefixes._kept if kept.stays]


@pytest.mark.parametrize(
    "make",
    [lambda: toys.toy_llama(toys.toy_tokenizer()), lambda: toys.sliding_llama(8), lambda: toys.sliding_gemma(8)],
    ids=["llama", "sliding llama", "sliding gemma"],
)
def test_no_order_of_requests_changes_an_answer_or_a_copy(
    make: Callable[[], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts made of few pieces, so that they share any length with any other: the same tokens, the same copies."""
    monkeypatch.setattr(context_module, "REWIND_TOKENS", 6)
    monkeypatch.setattr(Window, "step", 4)
    target = make()
    reused = 0

    prompts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join)

    @few
    @given(st.lists(st.tuples(prompts, st.integers(1, 9)), max_size=8))
    def any_order(asked: list[tuple[str, int]]) -> None:
        nonlocal reused
        decoder, prefixes = remembering(target)
        for text, count in asked:
            sampling = Sampling(temperature=0.8, seed=count)
            request = Request(custom_id="a", text=text, max_tokens=count, sampling=sampling)
            before = [(context, list(context.tokens), content(context)) for context in copies(prefixes)]
            made = decoder.generate(request)
            reused += made.metrics.reused_tokens

            assert alone(target, request) == made.tokens
            for context, tokens, held in before:
                context.check()
                assert tokens == context.tokens
                assert all(np.array_equal(one, now) for one, now in zip(held, content(context), strict=True))
            assert len(copies(prefixes)) <= MOST_COPIES

    any_order()
    assert reused > 0


@pytest.mark.parametrize("make", [toys.sliding_llama, toys.sliding_gemma])
def test_a_window_that_has_slid_on_is_read_once_more_and_then_reused(
    make: Callable[[int], Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first context cannot be rewound so far; the second request leaves a copy where the prompts part."""
    monkeypatch.setattr(context_module, "REWIND_TOKENS", 6)
    monkeypatch.setattr(Window, "step", 4)
    target = make(8)
    decoder, _ = remembering(target)
    requests = [Request(custom_id="a", text="abcdefghij" * 3 + end * 30, max_tokens=20) for end in "abcd"]
    made = [decoder.generate(request) for request in requests]

    assert [0, 0, 30, 30] == [one.metrics.reused_tokens for one in made]
    assert [alone(target, request) for request in requests] == [one.tokens for one in made]


def test_what_cannot_be_copied_is_read_whole() -> None:
    """A state-space target keeps nothing and answers all the same."""
    target = toys.recurrent()
    decoder, prefixes = remembering(target)
    request = Request(custom_id="a", text="abcdefghij" * 4, max_tokens=8)

    assert [alone(target, request)] * 2 == [decoder.generate(request).tokens for _ in range(2)]
    assert not prefixes._kept


@few
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(PIECES), st.sampled_from(PIECES)), max_size=12),
    st.integers(0, 300),
)
def test_memory_is_bounded(asked: Sequence[tuple[str, str, str]], room_tokens: int) -> None:
    """However many cells there are, all that is kept fits into the room; without room nothing is."""
    target = toys.toy_llama(toys.toy_tokenizer())
    room_bytes = room_tokens * 2 * 8 * 4
    prefixes = Prefixes(target, lambda: room_bytes)
    decoder = Decoder(target, None, 0, {})
    for cell, begin, end in asked:
        decoder.prefixes = prefixes.of(cell)
        decoder.generate(Request(custom_id="a", text=begin + end, max_tokens=3))
        assert prefixes.held_bytes <= room_bytes
        assert room_tokens or not prefixes._kept


def test_cells_share_nothing(models: Models) -> None:
    """Another cell's first prompt is read whole, whatever was read for others; without a name nothing is kept."""
    request = asked(RULES, QUESTIONS[0])
    for memory, reused in [("cell 1", False), ("cell 2", False), ("cell 1", True), ("", False), ("", False)]:
        metrics = models.decoder(OTHER, Drafting(), memory).generate(request).metrics

        assert reused == (metrics.reused_tokens > 0)


def test_the_models_of_another_target_make_them_go() -> None:
    """What was read by a model that is no longer loaded is not held either."""
    models = Models()
    models.decoder(TARGET, Drafting(), "cell").generate(asked(RULES, QUESTIONS[0]))
    models.decoder(OTHER, Drafting(), "cell")
    metrics = models.decoder(TARGET, Drafting(), "cell").generate(asked(RULES, QUESTIONS[0])).metrics

    assert 0 == metrics.reused_tokens


def test_an_interrupted_reading_is_of_use_and_harms_nobody() -> None:
    """Stopped in the middle of the prompt: what was read is not read again, and the answer is right."""
    target = toys.toy_llama(toys.toy_tokenizer())
    decoder, _ = remembering(target)
    request = Request(custom_id="a", text="abcdefghij" * 40, max_tokens=8)
    times = iter([False, True])
    cut = decoder.generate(request, interrupted=lambda: next(times, True))
    whole = decoder.generate(request)

    assert "interrupted" == cut.finish_reason
    assert context_module.CHUNK_TOKENS == whole.metrics.reused_tokens
    assert alone(target, request) == whole.tokens


def test_rows_of_a_batch_share_it_too() -> None:
    """Six prompts with one beginning, three at a time: their texts are those given alone."""
    target = toys.toy_llama(toys.toy_tokenizer())
    batch, prefixes = Batch(target, 3, ROOM, {}), Prefixes(target, lambda: ROOM)
    batch.prefixes = prefixes.of("cell")
    requests = [
        Request(custom_id=f"i{at}", text="abcdefghij" * 3 + end * 7, max_tokens=9, sampling=WARM)
        for at, end in enumerate("abcdef")
    ]
    answers = together(batch, requests)

    assert [alone(target, request) for request in requests] == [answers[one.custom_id].tokens for one in requests]
    assert [0, *[30] * 5] == [answers[one.custom_id].metrics.reused_tokens for one in requests]
