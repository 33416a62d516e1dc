"""`nocka compare` as a gate: it finds what got slower, and finds nothing where nothing changed."""

from __future__ import annotations

import json

import pytest

from db.parting import Parting
from db.records import Claim
from tests.api_cli.conftest import Nocka
from tests.api_cli.prepared import Figures, cross, evaluation, items, plain, wobble

CELLS = (plain(), cross("mini-draft-bytes"))


def as_before(claim: Claim) -> Figures:
    return Figures(speed=wobble(claim))


def slower_by(share: float) -> object:
    """The noise of another run, and everything slower by *share*."""

    def figures(claim: Claim) -> Figures:
        number = int(claim.item.custom_id.rpartition("/")[2])
        return Figures(speed=(1 - share) * wobble(claim) * (1 + 0.02 * (number % 3 - 1)))

    return figures


def test_a_against_itself_is_no_change(nocka: Nocka) -> None:
    job = evaluation(CELLS, items(8), as_before)
    result = nocka("compare", job, job)

    assert (0, 3) == (result.exit_code, result.stdout.count("1.00× [1.00–1.00]")), result.stdout
    assert "not slower by more than 5 %" in result.stderr


def test_an_injected_slowdown_of_ten_percent_is_found(nocka: Nocka) -> None:
    """Beyond 5 % it is a failure, beyond 15 % it is not; the JSON says where and how much."""
    a = evaluation(CELLS, items(8), as_before)
    b = evaluation(CELLS, items(8), slower_by(0.10))
    result = nocka("compare", a, b)

    assert (1, True) == (result.exit_code, "slower by more than 5 % in plain, cross context" in result.stderr)
    assert 0 == nocka("compare", a, b, "--tolerance", "15%").exit_code
    assert 0 == nocka("compare", b, a).exit_code, "faster is no failure"
    found = json.loads(nocka("compare", a, b, "--json").stdout)
    assert found["slower"] == ["plain", "cross context k=2 mini-draft-bytes", "all cells"]
    assert found["overall"]["speed"]["n"] == 24
    assert found["overall"]["speed"]["median"] == pytest.approx(0.9, abs=0.01)


def test_the_noise_of_another_run_is_no_slowdown(nocka: Nocka) -> None:
    a, b = evaluation(CELLS, items(8), as_before), evaluation(CELLS, items(8), slower_by(0.0))
    assert 0 == nocka("compare", a, b).exit_code


def test_below_twenty_items_there_is_no_verdict(nocka: Nocka) -> None:
    """However slow B is."""
    a, b = evaluation(CELLS, items(6), as_before), evaluation(CELLS, items(6), slower_by(0.5))
    result = nocka("compare", a, b)

    assert (0, True) == (result.exit_code, "no verdict on speed, which takes 20 items" in result.stderr)
    assert "0.50×" in result.stdout


def test_changed_texts_are_counted_and_listed(nocka: Nocka) -> None:
    def changed(claim: Claim) -> Figures:
        return Figures(speed=1.0, text="inny" if claim.item.custom_id == "question/0" else None, accepted=2)

    a, b = evaluation(CELLS, items(1), as_before), evaluation(CELLS, items(1), changed)
    found = json.loads(nocka("compare", a, b, "--json").stdout)

    assert [change["texts_changed"] for change in found["cells"]] == [1, 1]
    assert found["cells"][1]["acceptance_b"] < found["cells"][1]["acceptance_a"]
    rows = nocka("compare", a, b, "--by", "item").stdout.splitlines()
    assert [row for row in rows if "changed" in row] == [row for row in rows if "question/0" in row]


def test_a_changed_text_says_how_it_left_its_own_plain_one(nocka: Nocka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the worker measured it."""

    def changed(claim: Claim) -> Figures:
        parting = Parting(token=4, gap=0.03, near_tie=True) if claim.cell.k else None
        return Figures(speed=1.0, text="inny", parting=parting)

    monkeypatch.setenv("COLUMNS", "160")
    a, b = evaluation(CELLS, items(1), as_before), evaluation(CELLS, items(1), changed)
    rows = nocka("compare", a, b, "--by", "item").stdout.splitlines()

    assert 3 == sum("changed; B beside its plain: near-tie at token 4, gap 0.03" in row for row in rows)
    assert 6 == sum("changed" in row for row in rows)


def test_jobs_without_a_cell_in_common_are_refused(nocka: Nocka) -> None:
    a = evaluation(CELLS, items(1), as_before)
    b = evaluation((plain("other-target"), cross("x", target="other-target")), items(1), as_before)
    result = nocka("compare", a, b)

    assert (2, True) == (result.exit_code, "no cell in common" in result.stderr)
    assert 2 == nocka("compare", a, a, "--tolerance", "viel").exit_code
