"""What is too large for a machine gives up rows, then the draft, then is refused, before anything is loaded."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from tests.engine.conftest import GREEDY, TEXTS, ask, mini
from tests.engine.test_drafter_contract import CHEAP
from tests.engine.texts import few
from worker.engine.build import Models
from worker.engine.context import Context
from worker.engine.cost import Costs
from worker.engine.errors import ModelTooLarge, TextTooLarge
from worker.engine.memory import Asked, Size, fit, layers_bytes
from worker.engine.model import load, size_of
from worker.engine.room import Room
from worker.engine.rows import Sized
from worker.engine.values import Drafting, ModelRef, Request

TARGET, DRAFT = mini("mini-target"), mini("mini-draft")
NEURAL = Drafting(drafter="neural", draft=DRAFT, k=2)
REQUEST = ask(TEXTS[0], GREEDY, max_tokens=300)

amounts = st.integers(0, 50)
sizes = st.builds(
    Size,
    name=st.just("model"),
    weights_bytes=amounts,
    token_bytes=st.integers(0, 3),
    windowed_token_bytes=st.integers(0, 3),
    window_tokens=amounts,
    context_tokens=amounts,
)
wishes = st.builds(
    Asked,
    target=sizes,
    tokens=amounts,
    draft=st.none() | sizes,
    draft_tokens=amounts,
    rows=st.integers(1, 9),
)


@few
@given(wishes, st.integers(0, 600))
def test_as_much_as_fits_and_in_that_order(asked: Asked, allowed_bytes: int) -> None:
    """What is chosen fits; the draft goes only where not even one row fits beside it; refused is only what must be."""
    if dataclasses.replace(asked, draft=None, rows=1).needed_bytes() > allowed_bytes:
        with pytest.raises(ModelTooLarge if asked.target.weights_bytes > allowed_bytes else TextTooLarge):
            fit(asked, allowed_bytes)
        return
    made = fit(asked, allowed_bytes)
    assert made.asked.needed_bytes() <= allowed_bytes
    assert (made.why is None) == (made.asked.rows == asked.rows and made.asked.draft == asked.draft)
    if made.asked.draft != asked.draft:
        assert dataclasses.replace(asked, rows=1).needed_bytes() > allowed_bytes
    if made.asked.rows < asked.rows:
        more = dataclasses.replace(made.asked, rows=made.asked.rows + 1)
        assert more.needed_bytes() > allowed_bytes


@pytest.mark.parametrize("dtype", ["float32", "stored", "bfloat16"])
@pytest.mark.parametrize("name", ["mini-target", "mini-draft", "mini-draft-bytes", "mini-draft-polish"])
def test_a_models_size_is_known_from_its_files(name: str, dtype: str) -> None:
    """To the byte: weights as they will be held, and the cache of a text."""
    ref = ModelRef(source=mini(name).source, dtype=dtype)
    size, model = size_of(ref), load(ref)
    context = Context(model)
    context.append(list(range(5, 25)))

    assert model.size_bytes == size.weights_bytes
    assert 20 * context.token_bytes == size.cache_bytes(20)
    assert model.context_tokens == size.context_tokens


def test_a_quantised_model_is_measured_as_it_is_held(tmp_path: Path) -> None:
    """Its packed weights are what they are, whatever the others become."""
    folder = tmp_path / "quantised"
    shutil.copytree(Path(DRAFT.source), folder)
    model = load(ModelRef(source=DRAFT.source, dtype="float16"))
    nn.quantize(model.network, group_size=32, bits=4)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.network.parameters())))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization"] = {"group_size": 32, "bits": 4}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    for dtype in ("auto", "float32"):
        ref = ModelRef(source=str(folder), dtype=dtype)

        assert load(ref).size_bytes == size_of(ref).weights_bytes


def test_layers_of_every_kind_are_counted() -> None:
    """All, some or none of them see the whole text; of a model with pictures the text's part counts."""
    llama = {"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
    gemma = {**llama, "head_dim": 16, "sliding_window_pattern": 3, "sliding_window": 512}
    named = {**llama, "layer_types": ["full_attention"] * 2 + ["sliding_attention"] + ["linear_attention"] * 3}

    assert (6 * 2 * 2 * 8 * 2, 0, 0) == layers_bytes(llama, 2)
    assert (2 * 2 * 2 * 16 * 4, 4 * 2 * 2 * 16 * 4, 512) == layers_bytes({"text_config": gemma}, 4)
    assert (2 * 2 * 2 * 8 * 2, 1 * 2 * 2 * 8 * 2, 9) == layers_bytes({**named, "sliding_window": 9}, 2)
    assert (0, 0, 0) == layers_bytes({"num_hidden_layers": 6, "hidden_size": 64}, 2)


def needed_bytes(draft: ModelRef | None, rows: int = 1) -> int:
    """What TARGET and *draft* need beside REQUEST, counted as the room does."""
    room = Room(lambda: 0)
    tokens, draft_tokens = room._tokens(TARGET, draft, REQUEST)
    draft_size = None if draft is None else size_of(draft)
    asked = Asked(target=size_of(TARGET), tokens=tokens, draft=draft_size, draft_tokens=draft_tokens, rows=rows)
    return asked.needed_bytes()


def test_without_room_for_the_draft_it_goes_and_the_result_says_so(models: Models) -> None:
    """The same text, from the target alone; with a byte more there is a draft; nothing is loaded in vain."""
    needed = needed_bytes(DRAFT)
    scarce, enough = Models(lambda: needed - 1), Models(lambda: needed)
    alone = scarce.decoder(TARGET, NEURAL, "cell", asked=REQUEST).generate(REQUEST)
    drafted = enough.decoder(TARGET, NEURAL, "cell", asked=REQUEST).generate(REQUEST)

    assert {TARGET} == set(scarce._loaded) and {TARGET, DRAFT} == set(enough._loaded)
    assert alone.tokens == drafted.tokens == models.decoder(TARGET, Drafting()).generate(REQUEST).tokens
    assert not alone.metrics.rounds and (alone.metrics.off_reason or "").startswith("no draft: all would take 0.0")
    assert drafted.metrics.rounds and drafted.metrics.off_reason is None
    assert scarce.decoder(TARGET, Drafting(), "plain", asked=REQUEST).generate(REQUEST).metrics.off_reason is None


def test_drafts_that_need_no_model_stay() -> None:
    """Of a staged drafter the model goes, and the rest still proposes."""
    models = Models(lambda: needed_bytes(DRAFT) - 1)
    staged = Drafting(drafter="staged", draft=DRAFT, k=2)
    metrics = models.decoder(TARGET, staged, "cell", asked=REQUEST).generate(REQUEST).metrics

    assert {TARGET} == set(models._loaded)
    assert metrics.rounds and "no draft" in (metrics.off_reason or "")


def test_the_controller_goes_on_without_it() -> None:
    """`auto` asks for the costs of what there is, and what needs no model is still among its choices."""
    models, priced = Models(lambda: needed_bytes(DRAFT) - 1), list[ModelRef | None]()

    def costs(draft: ModelRef | None) -> Costs:
        priced.append(draft)
        return CHEAP

    auto = Drafting(drafter="auto", draft=DRAFT)
    metrics = models.decoder(TARGET, auto, "cell", costs, REQUEST).generate(REQUEST).metrics

    assert [None] == priced and {TARGET} == set(models._loaded)
    assert metrics.choices is not None and "no draft" in (metrics.off_reason or "")


def test_a_draft_that_no_longer_fits_makes_room() -> None:
    """A longer text of the same cell is decoded without it, and it is let go of."""
    short = dataclasses.replace(REQUEST, max_tokens=4)
    models = Models(lambda: needed_bytes(None) + size_of(DRAFT).weights_bytes - 1)
    assert models.decoder(TARGET, NEURAL, "cell", asked=short).generate(short).metrics.rounds
    assert {TARGET, DRAFT} == set(models._loaded)
    assert models.decoder(TARGET, NEURAL, "cell", asked=REQUEST).off_reason
    assert {TARGET} == set(models._loaded)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_fewer_rows_where_more_do_not_fit(rows: int) -> None:
    """As many as there is memory for, and the configuration says so."""
    models = Models(lambda: needed_bytes(None, rows))
    batch = models.batch(TARGET, Sized(rows=4, why="asked for"), "cell", asked=REQUEST)

    assert rows == batch.size == batch.config["batch"]["rows"]
    assert batch.config["batch"]["why"].startswith(f"asked for; {rows} of 4 rows: all would take 0.")


def test_what_does_not_fit_at_all_is_refused_before_it_is_loaded() -> None:
    """A text without room for its cache, and a target without room for its weights; each says what to do."""
    models = Models(lambda: needed_bytes(None) - 1)
    with pytest.raises(TextTooLarge, match=r"may have 3\d\d tokens, .* shorten the text, lower max_tokens"):
        models.decoder(TARGET, NEURAL, "cell", asked=REQUEST)
    small = Models(lambda: size_of(TARGET).weights_bytes - 1)
    with pytest.raises(
        ModelTooLarge, match=r"the weights of .*mini-target take 0\.04 GiB and models may take 0\.04 GiB"
    ):
        small.batch(TARGET, None, "cell", asked=REQUEST)
    with pytest.raises(ModelTooLarge, match="no draft: all would take"):
        Models(lambda: size_of(TARGET).weights_bytes + size_of(DRAFT).weights_bytes // 2).pair(TARGET, DRAFT)
    assert not models._loaded and not small._loaded
    short = Request(custom_id="a", text="Litwo", max_tokens=3)

    assert 3 >= len(models.decoder(TARGET, NEURAL, "cell", asked=short).generate(short).tokens)
