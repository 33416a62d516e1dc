"""Scorers: text in, score out, against figures worked out by hand."""

from __future__ import annotations

import re

import pytest

from worker.evals import bleu, chrf, contains, exact, json_valid, length, polish_share, regex


def test_chrf_is_100_for_the_reference_and_0_for_nothing_of_it() -> None:
    """The two ends of the scale."""
    assert chrf.score("Zażółć gęślą jaźń.", "Zażółć gęślą jaźń.") == pytest.approx(100.0)
    assert chrf.score("xyz", "abcd") == 0.0


def test_chrf_counts_characters_by_hand() -> None:
    """ "ab" against "ac": one of two characters on both sides, none of one pair; their mean F is 25."""
    assert chrf.score("ab", "ac") == pytest.approx(25.0)


def test_bleu_rises_with_the_words_that_agree() -> None:
    """All words 100; some in order more than none."""
    reference = "kot siedzi na starym płocie"
    assert bleu.score(reference, reference) == pytest.approx(100.0)
    assert bleu.score("pies leży pod nowym dachem", reference) < bleu.score("kot siedzi na płocie", reference) < 100


@pytest.mark.parametrize(
    ("text", "expected"), [("Kraków", 1), (" kraków.\n", 1), ("„KRAKÓW”", 1), ("Krakow", 0), ("w Krakowie", 0)]
)
def test_exact_forgives_case_and_marks_but_no_letter(text: str, expected: float) -> None:
    """ó is not o; a full stop is nothing."""
    assert exact.score(text, "Kraków") == expected


def test_exact_takes_composed_and_decomposed_letters_as_one() -> None:
    """As macOS writes them."""
    assert exact.score("Krako\u0301w", "Kraków") == 1


@pytest.mark.parametrize(
    ("text", "expected"), [("To jest Nowy Sącz, oczywiście.", 1), ("Nowy  sącz", 1), ("Sącz Nowy", 0), ("Sączek", 0)]
)
def test_contains_wants_whole_words_in_order(text: str, expected: float) -> None:
    """A longer word that begins alike does not count."""
    assert contains.score(text, "Nowy Sącz") == expected


def test_regex_looks_anywhere() -> None:
    """And what is no pattern is an error."""
    assert regex.score("rok 1683", r"\b1\d{3}\b") == 1
    assert regex.score("rok", r"\d") == 0
    with pytest.raises(re.error):
        regex.score("rok", "(")


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"a": 1}', 1), ("```json\n[1, 2]\n```", 1), ("{'a': 1}", 0), ("NaN", 0), ("", 0), ("[" * 100_000, 0)],
)
def test_json_valid_takes_one_value_bare_or_in_a_fence(text: str, expected: float) -> None:
    """NaN is no JSON, and depth is no crash."""
    assert json_valid.score(text) == expected


def test_length_and_polish_share_count_letters() -> None:
    """9 of 15 letters of the pangram's start are Polish."""
    assert length.score(" ala \n") == 3
    assert polish_share.score("Zażółć gęślą jaźń") == pytest.approx(9 / 15)
    assert polish_share.score("12 !") is None
