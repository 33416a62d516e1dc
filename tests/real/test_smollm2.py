"""A third-party model as the target, a mini draft across tokenizers: the same text as plain decoding."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.engine.build import Models
from worker.engine.values import Drafting, ModelRef, Request, Sampling, Turn

ROOT = Path(__file__).parents[2]
SMOLLM2 = ModelRef(source=str(ROOT / ".models" / "smollm2-135m"), dtype="float32")
PROMPTS = ["What is the capital of France?", "Powiedz po polsku: zażółć gęślą jaźń 🙂"]


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize("draft", ["mini-draft-bytes", "mini-draft-polish"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=3)], ids=["greedy", "warm"])
def test_same_text_as_plain(models: Models, draft: str, sampling: Sampling) -> None:
    """SmolLM2 writes the same whether a foreign draft proposes or not, and says something sound."""
    source = str(ROOT / "worker" / "mini" / draft)
    drafting = Drafting(drafter="cross", draft=ModelRef(source=source), translation="context", k=3)
    proposed = 0
    for prompt in PROMPTS:
        request = Request(
            custom_id="pytanie", turns=(Turn(role="user", content=prompt),), sampling=sampling, max_tokens=20
        )
        plain = models.decoder(SMOLLM2, Drafting()).generate(request)
        drafted = models.decoder(SMOLLM2, drafting).generate(request)
        proposed += drafted.metrics.proposed

        assert plain.tokens == drafted.tokens
        assert plain.text == drafted.text
    assert proposed > 0


@pytest.mark.real
@pytest.mark.timeout(300)
def test_speaks_english(models: Models) -> None:
    """The converted model is sound: it knows the capital of France."""
    request = Request(custom_id="a", turns=(Turn(role="user", content=PROMPTS[0]),), max_tokens=16)

    assert "Paris" in models.decoder(SMOLLM2, Drafting()).generate(request).text
