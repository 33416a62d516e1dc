"""Decoded together, every request gets the text it gets alone, and none can harm another."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.conftest import FILTERED, GREEDY, TEXTS, WARM, ask
from tests.engine.toys import LETTERS, recurrent, sliding_gemma, sliding_llama, toy_llama, toy_tokenizer
from worker.engine.batch import Batch, rows_that_fit
from worker.engine.cost import Costs
from worker.engine.decode import Decoder, prompt_ids
from worker.engine.divergence import compare
from worker.engine.errors import PromptTooLong, TextTooLarge
from worker.engine.memory import COPIES
from worker.engine.model import Model
from worker.engine.rows import ROWS, choose, from_calibration, measure, speculation
from worker.engine.sampling import Sampler
from worker.engine.values import Generation, Request, Sampling

ROOM = 1 << 30


def together(batch: Batch, requests: list[Request]) -> dict[str, Generation]:
    """Every request's answer; a new one joins whenever there is a place."""
    waiting, tickets, answers = list(requests), {}, {}
    while waiting or len(batch):
        while waiting and len(batch) < batch.size and batch.admits(waiting[0]):
            request = waiting.pop(0)
            tickets[batch.add(request)] = request.custom_id
        for one in batch.step():
            assert isinstance(one.outcome, Generation), one.outcome
            answers[tickets[one.ticket]] = one.outcome
    return answers


def alone(target: Model, request: Request) -> Generation:
    return Decoder(target, None, 0, {}).generate(request)


def check_equal(target: Model, requests: list[Request], answers: dict[str, Generation]) -> None:
    """Each answer is the one given alone, or parts from it at a near tie."""
    assert set(answers) == {request.custom_id for request in requests}
    for request in requests:
        expected, got = alone(target, request), answers[request.custom_id]
        sampler = Sampler(request.sampling, request.custom_id, target.vocab_size)
        difference = compare(target, sampler, prompt_ids(target, request), expected.tokens, got.tokens)
        if difference is None:
            assert (expected.text, expected.finish_reason) == (got.text, got.finish_reason)
        else:
            assert difference.gap < 1e-4, difference


def letters(count: int, sampling: Sampling, lengths: int = 26) -> list[Request]:
    """Requests to a toy model, of different lengths in and out."""
    texts = [(LETTERS * 12)[at : at + 3 + 11 * (at % 5)] for at in range(count)]
    return [
        Request(custom_id=f"i{at}", text=text, sampling=sampling, max_tokens=lengths + 3 * at)
        for at, text in enumerate(texts)
    ]


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
def test_text_is_the_one_given_alone(target: Model, sampling: Sampling) -> None:
    """Four prompts of different lengths, three at a time, so that one joins while others are under way."""
    requests = [
        dataclasses.replace(ask(text, sampling, max_tokens=8 + 5 * at), custom_id=f"i{at}")
        for at, text in enumerate(TEXTS)
    ]
    check_equal(target, requests, together(Batch(target, 3, ROOM, {}), requests))


@pytest.mark.parametrize("sampling", [GREEDY, WARM, FILTERED], ids=["greedy", "warm", "filtered"])
@pytest.mark.parametrize(
    "model",
    [lambda: toy_llama(toy_tokenizer()), lambda: sliding_llama(16), lambda: sliding_gemma(16), recurrent],
    ids=["llama", "sliding llama", "sliding gemma", "recurrent"],
)
def test_every_kind_of_cache(model: object, sampling: Sampling) -> None:
    """Seven requests in four places, past the sliding windows and with ends of turn in between."""
    target = model()  # type: ignore[operator]
    requests = letters(7, sampling)
    check_equal(target, requests, together(Batch(target, 4, ROOM, {}), requests))


def test_mixed_decoding_in_one_batch() -> None:
    """Each row draws as its own request says, also beside others."""
    target = toy_llama(toy_tokenizer())
    kinds = [GREEDY, WARM, FILTERED, dataclasses.replace(WARM, seed=12), GREEDY, WARM]
    requests = [dataclasses.replace(one, sampling=kind) for one, kind in zip(letters(6, GREEDY), kinds, strict=True)]
    check_equal(target, requests, together(Batch(target, 6, ROOM, {}), requests))


def test_stop_strings_end_their_own_row_only() -> None:
    """One row stops at a text, its neighbour with the same prompt goes on."""
    target = toy_llama(toy_tokenizer())
    free = Request(custom_id="free", text="abcabc", sampling=dataclasses.replace(WARM, seed=3), max_tokens=30)
    answer = alone(target, free).text
    held = dataclasses.replace(free, stop=(answer[3:6],))
    batch = Batch(target, 2, ROOM, {})
    first, second = batch.add(free), batch.add(held)
    ended: dict[int, Generation] = {}
    while len(batch):
        ended |= {one.ticket: one.outcome for one in batch.step()}  # type: ignore[misc]
    assert ended[first].text == answer
    assert (ended[second].text, ended[second].finish_reason) == (answer[: answer.index(answer[3:6])], "stop")


def test_a_dropped_row_leaves_the_others_as_they_were() -> None:
    """Dropped before its first token, in the middle, and twice."""
    target = toy_llama(toy_tokenizer())
    requests = letters(5, WARM)
    batch = Batch(target, 5, ROOM, {})
    tickets = {request.custom_id: batch.add(request) for request in requests}
    batch.drop(tickets["i0"])
    answers: dict[int, Generation] = {}
    for step in range(200):
        if step == 6:
            batch.drop(tickets["i3"])
            batch.drop(tickets["i3"])
        answers |= {one.ticket: one.outcome for one in batch.step()}  # type: ignore[misc]
    names = {ticket: name for name, ticket in tickets.items()}
    kept = [request for request in requests if request.custom_id not in {"i0", "i3"}]
    check_equal(target, kept, {names[ticket]: answer for ticket, answer in answers.items()})
    assert len(batch) == 0


def test_one_rows_error_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose tokens cannot be spelled ends with the error, the others with their answers."""
    target = toy_llama(toy_tokenizer())
    requests = letters(3, WARM)
    batch = Batch(target, 3, ROOM, {})
    tickets = [batch.add(request) for request in requests]
    broken = batch._rows[tickets[1]].emitter
    monkeypatch.setattr(broken, "push", lambda token: 1 // 0)
    ended = {}
    while len(batch):
        ended |= {one.ticket: one.outcome for one in batch.step()}
    assert isinstance(ended[tickets[1]], ZeroDivisionError)
    answers = {request.custom_id: ended[ticket] for request, ticket in zip(requests, tickets, strict=True)}
    del answers["i1"]
    check_equal(target, [requests[0], requests[2]], answers)


def test_a_prompt_that_cannot_be_read_never_joins() -> None:
    """It is refused before anything is touched."""
    target = dataclasses.replace(toy_llama(toy_tokenizer()), context_tokens=8)
    batch = Batch(target, 2, ROOM, {})
    with pytest.raises(PromptTooLong):
        batch.add(Request(custom_id="long", text="abcdefghij"))
    assert len(batch) == 0


def test_an_interrupted_reading_does_not_join() -> None:
    """No ticket, no row."""
    batch = Batch(toy_llama(toy_tokenizer()), 2, ROOM, {})
    assert batch.add(Request(custom_id="a", text="abc"), lambda: True) is None
    assert len(batch) == 0
    assert batch.step() == []


def test_no_more_rows_than_memory_allows() -> None:
    """With room for two of three the third waits; with room for none, one still runs."""
    target = toy_llama(toy_tokenizer())
    requests = [Request(custom_id=f"i{at}", text="abcabc", max_tokens=94) for at in range(3)]
    probe = Batch(target, 3, ROOM, {})
    probe.add(requests[0])
    row_bytes = COPIES * 100 * probe._token_bytes
    for room, admitted in ((row_bytes * 2, 2), (row_bytes * 3, 3), (1, 1)):
        batch = Batch(target, 3, room, {})
        for request in requests:
            if batch.admits(request):
                batch.add(request)
        assert len(batch) == admitted


def test_what_does_not_fit_even_by_itself_is_refused() -> None:
    """Once it is known what a token takes, and nobody else is in the batch to wait for."""
    target = toy_llama(toy_tokenizer())
    short, long = (Request(custom_id="a", text="abcabc", max_tokens=count) for count in (4, 94))
    probe = Batch(target, 3, ROOM, {})
    probe.add(short)
    batch = Batch(target, 3, 99 * probe._token_bytes, {})
    ticket = batch.add(short)
    assert not batch.admits(long)
    assert ticket is not None
    batch.drop(ticket)
    with pytest.raises(TextTooLarge, match="shorten the text or lower max_tokens"):
        batch.admits(long)
    assert batch.admits(short)


@given(
    length=st.integers(1, 100_000),
    token_bytes=st.integers(0, 1_000_000),
    room=st.integers(0, 10**12),
    most=st.integers(1, 64),
)
def test_rows_that_fit(length: int, token_bytes: int, room: int, most: int) -> None:
    """They do fit, one more would not, and one always runs."""
    rows = rows_that_fit(length, token_bytes, room, most)
    assert 1 <= rows <= most
    assert rows == 1 or rows * COPIES * length * token_bytes <= room
    assert rows == most or (rows + 1) * COPIES * length * token_bytes > room


def test_the_figures_share_the_time() -> None:
    """The shares of the rows add up to the batch's time, and each says how many it was decoded with."""
    target = toy_llama(toy_tokenizer())
    requests = letters(4, GREEDY)
    answers = together(Batch(target, 4, ROOM, {}), requests)
    shares = [answer.metrics.decode_s for answer in answers.values()]
    longest = max(answer.metrics.batch.wall_s for answer in answers.values() if answer.metrics.batch)
    assert 0 < sum(shares) <= longest * 1.01
    assert all(1 <= answer.metrics.batch.rows <= 4 for answer in answers.values() if answer.metrics.batch)


def test_rows_stop_where_another_doubling_does_not_pay() -> None:
    """Free rows: all of them; rows at full price: one; and the gain is against one row."""
    assert choose(((1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0))) == (8, 8.0)
    assert choose(((1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0))) == (1, 1.0)
    assert choose(((1, 1.0), (2, 1.1), (4, 2.15), (8, 1.0))) == (2, 2 / 1.1)


def test_what_speculation_gives_instead() -> None:
    """The acceptance at which the cheapest drafter gives as much, and where that is above one, its best."""
    costs = Costs(
        plain=((0, 1.0),),
        verify=((0, ((1, 1.0), (16, 2.0))),),
        propose={"lookup": ((1, 0.0), (8, 0.0)), "cross": ((1, 5.0), (8, 9.0))},
        prefill_token_s=0.0,
    )
    assert speculation(costs, 2.0, 0) == "speculation would match it at 26% acceptance (lookup, k = 8)"
    assert "speculation would give 5.87x at the very most" in from_calibration(costs, 0).why


def test_a_measurement_covers_all_rows(target: Model) -> None:
    """Every number of rows has its seconds, and some number is chosen."""
    points = measure(target)
    assert [rows for rows, _ in points] == list(ROWS)
    assert all(seconds > 0 for _, seconds in points)
    assert choose(points)[0] in ROWS
