"""Data sets as items."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from api_cli.datasets import SHIPPED, DataSpec, load, repeated, split_text
from db.errors import InputError, InvalidInput


@pytest.mark.parametrize("name", list(SHIPPED))
def test_forty_of_each_kind_ship_and_differ(name: str, tmp_path: Path) -> None:
    """Whole, distinct, filed under their set and kind."""
    items = load([DataSpec(name=name)], None, tmp_path)

    assert 40 == len(items) == len({item.custom_id for item in items})
    assert 40 == len({item.text or item.messages for item in items})
    assert {(name, SHIPPED[name].kind)} == {(item.dataset, item.content_kind) for item in items}
    assert (name != "instructions") == all(item.reference for item in items)


def test_structured_texts_are_a_prompt_and_what_follows(tmp_path: Path) -> None:
    """Continued raw; of 60 to 150 words, at least two fifths and not nearly all are the prompt."""
    for item in load([DataSpec(name="structured")], None, tmp_path):
        assert item.text is not None and item.reference is not None and item.messages is None
        share = len(item.text.split()) / len((item.text + item.reference).split())
        assert 60 <= len((item.text + item.reference).split()) <= 150, item.custom_id
        assert 0.4 <= share <= 0.7, item.custom_id
        assert not item.text[-1].isspace() and item.reference[0].isspace()


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("Raz dwa trzy. Cztery pięć sześć siedem.", "Raz dwa trzy."),
        ("Ser:\n- mleko\n- sól\n- podpuszczka\n- woda", "Ser:\n- mleko\n- sól"),
        ("bez żadnych znaków idzie ten tekst", "bez żadnych znaków"),
        ("dwa słowa", "dwa"),
        ("jedno", "jedno"),
        ("", ""),
    ],
)
def test_a_text_is_cut_at_a_boundary_and_loses_nothing(text: str, prompt: str) -> None:
    """Behind a line, sentence or clause where there is one; a continuation is left where there can be."""
    first, rest = split_text(text)

    assert prompt == first
    assert text == first + rest


def test_a_limit_is_for_each_data_set(tmp_path: Path) -> None:
    """The smaller of the grid's and its own."""
    items = load([DataSpec(name="questions"), DataSpec(name="structured", limit=2)], 3, tmp_path)

    assert ["questions"] * 3 + ["structured"] * 2 == [item.dataset for item in items]


def test_repeats_have_ids_of_their_own(tmp_path: Path) -> None:
    """Next to each other, so that they share the hour."""
    items = repeated(load([DataSpec(name="questions")], 2, tmp_path), 2)

    first, second = "questions/question-01", "questions/question-02"
    assert [first, f"{first}#2", second, f"{second}#2"] == [item.custom_id for item in items]


def test_a_users_own_files_are_read_as_submit_reads_them(tmp_path: Path) -> None:
    """Relative to the grid; references, columns and instructions hold."""
    (tmp_path / "a.csv").write_text("custom_id,tekst,reference\nx,Ala ma kota,tak\n", "utf-8")
    [item] = load([DataSpec(path="a.csv", column="tekst", kind="zdanie", prompt="Oceń: {text}")], None, tmp_path)

    assert ("a.csv/x", "tak", "zdanie", "a.csv") == (item.custom_id, item.reference, item.content_kind, item.dataset)
    assert item.messages is not None and "Oceń: Ala ma kota" == item.messages[0].content


def test_a_users_own_texts_can_be_split(tmp_path: Path) -> None:
    """As the shipped ones are."""
    (tmp_path / "a.txt").write_text("Raz dwa trzy. Cztery pięć sześć siedem.", "utf-8")
    [item] = load([DataSpec(path="a.txt", split_text=True)], None, tmp_path)

    assert ("Raz dwa trzy.", " Cztery pięć sześć siedem.") == (item.text, item.reference)


def test_bad_lines_are_named_and_a_missing_file_too(tmp_path: Path) -> None:
    """Before anything is queued."""
    (tmp_path / "a.jsonl").write_text('{"text": "dobrze"}\n{"txt": "źle"}\n', "utf-8")
    with pytest.raises(InvalidInput, match=r"a\.jsonl:2"):
        load([DataSpec(path="a.jsonl")], None, tmp_path)
    with pytest.raises(InvalidInput, match="No such file"):
        load([DataSpec(path="nowhere.txt")], None, tmp_path)


def test_a_data_set_has_one_source() -> None:
    """And an unknown name lists the known ones."""
    with pytest.raises(ValidationError, match="one of name, path and huggingface"):
        DataSpec(name="questions", path="a.txt")
    with pytest.raises(ValidationError, match="no data set 'qestions'; there are structured"):
        DataSpec(name="qestions")
    with pytest.raises(ValidationError, match="which column"):
        DataSpec(huggingface="a/b")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="the package datasets is an extra")
@pytest.mark.filterwarnings("ignore")
def test_a_folder_of_hugging_face_is_read_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a hub; a wrong column is named with those that are there."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "zbior"
    folder.mkdir()
    lines = [{"pytanie": "Ile to 2+2?", "odpowiedz": "4"}, {"pytanie": "Stolica?", "odpowiedz": "Praga"}]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    spec = {"huggingface": "zbior", "column": "pytanie", "reference": "odpowiedz"}
    items = load([DataSpec(**spec)], None, tmp_path)

    assert [("zbior/0", "4"), ("zbior/1", "Praga")] == [(item.custom_id, item.reference) for item in items]
    with pytest.raises(InputError, match="no column 'x'; it has pytanie, odpowiedz"):
        load([DataSpec(**spec | {"column": "x"})], None, tmp_path)
