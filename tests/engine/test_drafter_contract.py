"""What holds for every drafter, whatever it knows: it proposes within its limits and never shows in the output."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import FILTERED, GREEDY, TEXTS, WARM, ask, mini
from worker.engine.build import Models
from worker.engine.cost import Costs
from worker.engine.decode import Decoder
from worker.engine.drafters.base import MAX_PROPOSED, Drafter, Remembers
from worker.engine.model import Model
from worker.engine.ngram_file import build
from worker.engine.sampling import Sampler
from worker.engine.values import Drafting, Request, Turn

#: The smallest model stands in for the target, so that every case is quick.
TARGET = mini("mini-draft")
FOREIGN = mini("mini-draft-bytes")
KINDS = {
    "neural": Drafting(drafter="neural", draft=TARGET, k=3),
    "cross-direct": Drafting(drafter="cross", draft=FOREIGN, translation="direct", k=3),
    "cross-naive": Drafting(drafter="cross", draft=FOREIGN, translation="naive", k=3),
    "cross-context": Drafting(drafter="cross", draft=FOREIGN, translation="context", k=3),
    "intersect": Drafting(drafter="intersect", draft=mini("mini-draft-polish"), k=3),
    "ngram": Drafting(drafter="ngram", ngram="FILE", k=4),
    "lookup": Drafting(drafter="lookup", k=16),
    "suffix": Drafting(drafter="suffix", k=16),
    "staged": Drafting(drafter="staged", k=2),
    "staged-ngram": Drafting(drafter="staged", ngram="FILE", k=2),
    "staged-neural": Drafting(drafter="staged", draft=TARGET, k=2),
    "auto": Drafting(drafter="auto", ngram="FILE"),
    "auto-neural": Drafting(drafter="auto", draft=TARGET),
    "auto-cross": Drafting(drafter="auto", draft=FOREIGN),
    "staged-cross": Drafting(drafter="staged", draft=FOREIGN, ngram="FILE", k=2),
}
#: As if drafting and verifying cost next to nothing, so that everything is tried.
CHEAP = Costs(
    plain=((128, 0.01),),
    verify=((128, ((1, 0.01), (17, 0.011))),),
    propose=dict.fromkeys(("neural", "cross", "suffix", "ngram"), ((1, 1e-4), (8, 1e-3))),
    prefill_token_s=1e-5,
    draft_prefill_token_s=1e-6,
)
REQUESTS = [
    ask(TEXTS[1] * 2, GREEDY, 32),
    ask(TEXTS[1] * 2, WARM, 20),
    ask(TEXTS[2], FILTERED, 12),
    ask(TEXTS[1] * 2, WARM, 20),
]


@pytest.fixture(scope="module")
def ngram(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of what the target itself says, so that it is often right."""
    path = tmp_path_factory.mktemp("ngram") / "said.ngram"
    plain = models.decoder(TARGET, Drafting())
    said = [plain.generate(request).tokens for request in REQUESTS]
    build(path, said, plain._target.tokenizer.table, 3, 1)
    return path


@pytest.fixture
def decoder(models: Models, ngram: Path, request: pytest.FixtureRequest) -> Decoder:
    """A decoder of the parametrized kind with a memory of its own."""
    drafting = KINDS[request.param]
    if drafting.ngram is not None:
        drafting = Drafting(drafter=drafting.drafter, draft=drafting.draft, ngram=str(ngram), k=drafting.k)
    return models.decoder(TARGET, drafting, memory=request.node.name, costs=lambda draft: CHEAP)


@pytest.fixture(scope="module")
def plain(models: Models) -> Callable[[Request], tuple[int, ...]]:
    return lambda request: models.decoder(TARGET, Drafting()).generate(request).tokens


every_drafter = pytest.mark.parametrize("decoder", KINDS, indirect=True)


@every_drafter
def test_lossless_one_request_after_the_other(decoder: Decoder, plain: Callable[[Request], tuple[int, ...]]) -> None:
    """Greedy, sampled and filtered, the same again at the end: plain decoding's tokens, whatever is remembered."""
    proposed = 0
    for request in REQUESTS:
        generation = decoder.generate(request)
        proposed += generation.metrics.proposed

        assert plain(request) == generation.tokens
    assert proposed > 0


@every_drafter
def test_lossless_behind_a_beginning_that_was_read_before(
    decoder: Decoder, plain: Callable[[Request], tuple[int, ...]]
) -> None:
    """An instruction in common and one of another's in between: plain decoding's tokens, and not all was read again."""
    reused = 0
    for text, sampling in [(TEXTS[3], GREEDY), (TEXTS[0], WARM), (TEXTS[1], GREEDY), (TEXTS[2], FILTERED)]:
        for rules in ("Odpowiadaj krótko, rzeczowo i po polsku.", "Odpowiadaj krótko."):
            turns = (Turn(role="system", content=rules), Turn(role="user", content=text))
            request = Request(custom_id="a", turns=turns, sampling=sampling, max_tokens=12)
            made = decoder.generate(request)
            reused += made.metrics.reused_tokens

            assert plain(request) == made.tokens
    assert reused > 0


@every_drafter
def test_interruption_is_noticed_and_forgotten(decoder: Decoder, plain: Callable[[Request], tuple[int, ...]]) -> None:
    """Interrupted at any point the answer is a beginning of the right one, and the next request is right again."""
    for patience in (0, 1, 3, 5):
        asked = itertools.count()
        cut = decoder.generate(REQUESTS[1], interrupted=lambda asked=asked, patience=patience: next(asked) >= patience)

        assert "interrupted" == cut.finish_reason
        assert plain(REQUESTS[1])[: len(cut.tokens)] == cut.tokens
    assert plain(REQUESTS[0]) == decoder.generate(REQUESTS[0]).tokens


def rounds(drafter: Drafter, target: Model, request: Request, truth: list[int]) -> Iterator[tuple[list[int], int, int]]:
    """Drive *drafter* along *truth* as the loop would, with limits of all sizes; yields k, limit and each proposal."""
    prompt = target.tokenizer.conversation(request.turns or ())
    drafter.start(request, prompt, Sampler(request.sampling, "a", target.vocab_size), lambda: False)
    tokens = list(prompt)
    limits = itertools.cycle([3, 0, 1, 40, 16, 2])
    while truth:
        k, limit = (1 + len(truth) % 16), next(limits)
        proposal = drafter.propose(tokens, k, limit).tokens
        ids: list[int] = list(proposal) if isinstance(proposal, tuple) else proposal.tolist()  # type: ignore[assignment]
        yield ids, k, limit
        stood = next((at for at, (one, other) in enumerate(zip(ids, truth, strict=False)) if one != other), len(ids))
        tokens += truth[: stood + 1]
        truth = truth[stood + 1 :]
    drafter.finish(tokens)


@every_drafter
def test_limits_and_vocabulary(decoder: Decoder, plain: Callable[[Request], tuple[int, ...]]) -> None:
    """Never more than the limit or 16, never an id that the target does not have, also with nothing to go by."""
    drafter, target = decoder._drafter, decoder._target
    assert drafter is not None
    for request in (ask("?", GREEDY, 6), REQUESTS[1], REQUESTS[1]):
        truth = list(plain(request))
        for ids, _, limit in rounds(drafter, target, request, truth):
            assert len(ids) <= min(limit, MAX_PROPOSED)
            assert all(0 <= token_id < target.vocab_size for token_id in ids)


@every_drafter
def test_one_prompt_token_and_no_answer(decoder: Decoder) -> None:
    """The shortest history there can be."""
    assert 1 == len(decoder.generate(Request(custom_id="a", text="a", max_tokens=1)).tokens)


def test_cells_share_no_memory(models: Models) -> None:
    """Equal settings under another name begin with nothing; under the same name they go on."""
    drafting = KINDS["suffix"]
    one = models.decoder(TARGET, drafting, memory="cell 1")
    request = ask(TEXTS[0], WARM, 20)
    one.generate(request)
    other = models.decoder(TARGET, drafting, memory="cell 2")

    assert other is not one is models.decoder(TARGET, drafting, memory="cell 1")
    assert (False, True) == (one.blank, other.blank)
    assert other.generate(request).metrics.accepted < one.generate(request).metrics.accepted


def test_an_answer_recalled_is_as_good_as_one_given(models: Models) -> None:
    """After a restart the store's texts make the same drafts as the answers did."""
    request = ask(TEXTS[0], WARM, 20)
    given = models.decoder(TARGET, KINDS["suffix"], memory="given")
    text = given.generate(request).text
    recalled = models.decoder(TARGET, KINDS["suffix"], memory="recalled")
    recalled.recall([text])

    assert not recalled.blank
    assert given.generate(request).metrics.accepted <= recalled.generate(request).metrics.accepted + 1


def test_drafters_without_a_memory_are_shared(models: Models) -> None:
    """Another job with the same settings finds the decoder as it is; nothing asks it to recall."""
    one = models.decoder(TARGET, KINDS["lookup"], memory="cell 1")

    assert one is models.decoder(TARGET, KINDS["lookup"], memory="cell 2")
    assert not one.blank and not isinstance(one._drafter, Remembers)


def test_memories_are_bounded_in_number(models: Models) -> None:
    """Many jobs one after the other do not keep their memories for ever."""
    first = models.decoder(TARGET, KINDS["suffix"], memory="0")
    for number in range(1, 17):
        models.decoder(TARGET, KINDS["suffix"], memory=str(number))

    assert first is not models.decoder(TARGET, KINDS["suffix"], memory="0")
