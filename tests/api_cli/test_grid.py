"""A grid file as cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from api_cli.estimate import hours_of, hours_text
from api_cli.grid import cells, lacking, model_loads, parse, preset_text, presets
from api_cli.preflight import checked
from db.errors import InputError
from db.groups import groups, plain_positions
from db.specs import CellSpec, DrafterKind

SMALL = 'targets = ["mini-target"]\ndata = ["questions"]\n'


def made(text: str) -> list[str]:
    return [cell.label for cell in cells(parse(SMALL + text, "grid.toml"))]


def test_every_point_is_a_cell_and_plain_is_there_unasked() -> None:
    """Drafts x translations x k, each draft a group with its own baseline."""
    grid = 'drafts = ["mini-draft-bytes", "mini-draft-polish"]\ntranslations = ["naive", "context"]\nk = [2, 4]'
    labels = made(grid)

    assert 10 == len(labels)
    assert ["plain", "cross naive k=2 mini-draft-bytes", "cross naive k=4 mini-draft-bytes"] == labels[:3]
    assert "plain" == labels[5]


def test_what_means_nothing_collapses() -> None:
    """k under off, translation under neural and seeds at temperature 0 make no cells of their own."""
    grid = 'drafts = ["mini-draft"]\ndrafters = ["off", "neural"]\ntranslations = ["naive", "context"]\nk = [2, 4]'

    assert ["plain", "neural k=2 mini-draft", "neural k=4 mini-draft"] == made(grid + "\nseeds = [1, 2, 3]")
    assert 2 * 3 * 3 == len(made(grid + "\nseeds = [1, 2, 3]\ntemperatures = [0.5, 0.9]"))


def test_every_temperature_has_its_own_baseline() -> None:
    """A cell is held against plain decoding of its own temperature and seed."""
    grid = parse(SMALL + 'drafters = ["lookup"]\ntemperatures = [0.0, 0.8]\nseeds = [1, 2]', "grid.toml")
    specs = cells(grid)

    assert 6 == len(specs)
    assert [range(6)] == groups(specs)
    assert {3: 0, 4: 1, 5: 2} == plain_positions(specs)


def test_answers_decoded_together_are_a_group_behind_the_others() -> None:
    """Once a target, held against the plain cell of one answer at a time; a rule may leave them out."""
    text = SMALL + 'drafts = ["mini-draft", "mini-draft-bytes"]\nk = [2]\nbatches = [1, 4, 0]\n'
    specs = cells(parse(text, "grid.toml"))

    assert ["plain batch=4", "plain batch=auto"] == [cell.label for cell in specs[4:]]
    assert [range(2), range(2, 4), range(4, 5), range(5, 6)] == groups(specs)
    assert {1: 0, 3: 2, 4: 0, 5: 0} == plain_positions(specs)
    assert 5 == len(cells(parse(text + "exclude = [{batch = 4}]", "grid.toml")))


def test_excluded_is_what_matches_a_rule_in_all_it_names() -> None:
    """Lists stand for any of their values; the baseline is never excluded."""
    grid = 'drafts = ["mini-draft", "mini-draft-bytes"]\ndrafters = ["cross", "neural"]\nk = [2, 4]\n'
    rules = (
        'exclude = [{drafter = "neural", draft = "mini-draft-bytes"}, '
        '{drafter = ["cross"], k = [2, 4], draft = "mini-draft"}]'
    )

    assert [
        "plain",
        "neural k=2 mini-draft",
        "neural k=4 mini-draft",
        "plain",
        "cross context k=2 mini-draft-bytes",
        "cross context k=4 mini-draft-bytes",
    ] == made(grid + rules)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('translation = ["naive"]', "translation: no such key. Did you mean translations?"),
        ('exclude = [{drafer = "cross"}]', "exclude[0].drafer: no such key. Did you mean drafter?"),
        ('k = ["two"]', "k.0"),
        ('drafters = ["cros"]', "drafters.0"),
        ("k = [", "not TOML"),
        ('drafters = ["cross"]', "drafters cross need drafts"),
        ('drafters = ["ngram"]', "ngram needs ngrams"),
        ('drafts = ["mini-draft"]\nk = [17]', "k is 1 to 16"),
    ],
)
def test_a_fault_is_named(text: str, said: str) -> None:
    """With the nearest known key where one was mistyped."""
    with pytest.raises(InputError) as error:
        made(text)
    assert said in str(error.value)


def test_a_mistyped_key_of_a_data_set_is_named() -> None:
    """Too."""
    with pytest.raises(InputError, match=r"data\[0\]\.colum: no such key. Did you mean column"):
        parse('targets = ["mini-target"]\ndata = [{path = "a.csv", colum = "x"}]', "grid.toml")


@pytest.mark.parametrize("name", presets())
def test_presets_pass_their_own_preflight(name: str, tmp_path: Path) -> None:
    """Every model and scorer in them is known, and no cell is there twice within a group."""
    grid = parse(preset_text(name), name)
    specs, task = checked(cells(grid), grid.scorers, tmp_path)

    assert grid.name == name
    assert task.scorers == grid.scorers
    for group in groups(specs):
        assert specs[group.start].drafter is DrafterKind.OFF
        assert len({specs[at] for at in group}) == len(group)


def test_paper_mini_has_every_translation_of_both_foreign_drafts_and_the_reference() -> None:
    """Three groups, one for each draft, and four models to load."""
    specs = cells(parse(preset_text("paper-mini"), "paper-mini"))

    assert [10, 10, 4] == [len(group) for group in groups(specs)]
    assert 4 == model_loads(specs)


def test_a_change_of_target_lets_go_of_what_was_loaded() -> None:
    """So that grids with two targets load each draft for each."""
    text = (
        'targets = ["mini-target", ".models/other"]\ndata = ["questions"]\ndrafts = ["mini-draft", "mini-draft-bytes"]'
    )
    specs = cells(parse(text, "grid.toml"))

    assert 6 == model_loads(specs)
    assert 1 == model_loads([CellSpec(target="a"), CellSpec(target="a")])
    assert 3 == model_loads([CellSpec(target="a"), CellSpec(target="b"), CellSpec(target="a")])


def test_what_a_sweep_lacks_comes_with_its_baseline() -> None:
    """And what it has is left out; where it has all, nothing is left."""
    text = SMALL + 'drafts = ["mini-draft-bytes"]\nk = '
    before, after = (cells(parse(text + k, "grid.toml")) for k in ("[2]", "[2, 4]"))

    assert ["plain", "cross context k=4 mini-draft-bytes"] == [cell.label for cell in lacking(after, before)]
    assert () == lacking(before, after)


def test_a_neural_draft_with_another_tokenizer_is_refused_before_the_night(tmp_path: Path) -> None:
    """By the vocabularies themselves, where both models lie here; with every other fault beside it."""
    grid = parse(SMALL + 'drafts = ["mini-draft-bytes", "nothing-known"]\ndrafters = ["neural"]', "grid.toml")
    with pytest.raises(InputError) as error:
        checked(cells(grid), ["chfr"], tmp_path)

    for said in ("mini-draft-bytes cuts text differently", "--draft nothing-known: neither", "no scorer 'chfr'"):
        assert said in str(error.value)


def test_a_missing_package_of_a_scorer_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not at four in the morning."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"chrf needs sacrebleu: pip install 'nocka\[eval\]'"):
        checked([CellSpec(target="mini-target")], ["chrf"], tmp_path)


def test_hours_are_tokens_over_speed_or_unknown() -> None:
    """10 items of 128 tokens under two cells at 10 tokens a second are 256 s."""
    specs = cells(parse(SMALL + 'drafters = ["lookup"]', "grid.toml"))

    assert hours_of(specs, 10, {"mini-target": 10.0}) == pytest.approx(256 / 3600)
    assert hours_of(specs, 10, {"mini-target": None}) is None
    assert "about 4 minutes" == hours_text(256 / 3600)
    assert "unknown" in hours_text(None)
