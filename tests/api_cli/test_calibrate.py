"""`nocka calibrate`: what a worker stored of a pair, as a person reads it. The worker's own code makes the figures."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
import redis

from api_cli.client import Client
from db.records import Claim, Finished
from db.specs import CalibrationTask, DrafterKind
from tests.api_cli.conftest import Nocka, PlayedWorker
from worker.engine.calibrate import FORWARDS, LENGTHS, Measured
from worker.engine.cost import Costs
from worker.jobs.calibration import as_figures

PAIR = ("--target", "mini-target", "--draft", "mini-draft-bytes")


def figures(spread: float = 0.05) -> dict[str, Any]:
    """Of a machine where a token more in a forward costs a sixteenth of one, and k drafted ones 0.12 + 3k/8."""
    costs = Costs(
        plain=((128, 0.1), (1024, 0.2)),
        verify=tuple(
            (context, tuple((m, longer * (0.1 + 0.00625 * (m - 1))) for m in FORWARDS))
            for context, longer in ((128, 1.0), (1024, 2.0))
        ),
        propose={"cross": tuple((k, 0.012 + 0.0375 * k) for k in LENGTHS), "ngram": tuple((k, 1e-5) for k in LENGTHS)},
        prefill_token_s=0.002,
        draft_prefill_token_s=0.0005,
        draft_step_s=0.03,
    )
    spreads = {f"verify {context} {m}": spread for context in (128, 1024) for m in FORWARDS}
    spreads |= {"plain 128": spread, "plain 1024": spread}
    found = as_figures(Measured(costs=costs, spread=spreads, rounds=7, seconds=12.5), 40_000_000, 4_000_000)
    where = {"machine": "mak-1", "device": "cpu with openblas-pthread", "dtype": "float32", "mlx": "0.32.4"}
    return {**found, "where": where}


@pytest.fixture
def run(broker: redis.Redis, nocka: Nocka, worker: PlayedWorker) -> Any:
    """The command, while a worker ends its job with *outcome*."""

    def with_outcome(outcome: dict[str, Any] | tuple[str, str], *options: str) -> Any:
        def answer(claim: Claim) -> Finished | tuple[str, str]:
            assert isinstance(claim.task, CalibrationTask)
            if isinstance(outcome, tuple):
                return outcome
            return Finished(text=outcome["advice"], finish_reason="stop", metrics=outcome, config={})

        def play() -> None:
            while not worker.end(answer):
                pass

        player = threading.Thread(target=play)
        player.start()
        result = nocka("calibrate", *PAIR, *options)
        player.join()
        return result

    return with_outcome


def test_it_prints_the_curve_what_pays_and_one_sentence(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The curve at both contexts, a row for each drafter, the fit with what is left of each round, and the advice."""
    monkeypatch.setenv("COLUMNS", "120")
    result = run(figures())
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]

    assert result.exit_code == 0, result.stderr
    assert "On mak-1: cpu with openblas-pthread, float32, mlx 0.32.4" in lines
    assert "17 200.00 5 % 400.00 5 % 2.00 ████████████████████████" in lines
    assert "1, streamed 100.00 5 % 200.00 5 % 1.00" in lines
    # Behind 512 tokens all but the draft takes 1.43 times as long: 1/16 + (0.12 / k + 3/8) / 1.43.
    assert "cross 87.00 41 % 37 % 35 % 35 % 34 % 34 % 34 % 34 %" in lines
    [fitted] = [line for line in lines if line.startswith("cross 0.")]
    assert len(fitted.split()) == 3 + 8
    assert lines[-1] == "k = 8 pays above 34 % acceptance with cross; n-grams pay above 6 %."


def test_predictions_are_never_taken_for_measurements(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three machines stand in a table that says so, beside what the paper published and what the formula misses."""
    monkeypatch.setenv("COLUMNS", "120")
    lines = [" ".join(line.split()) for line in run(figures()).stdout.splitlines()]
    start = next(index for index, line in enumerate(lines) if line.startswith("predicted, not measured"))
    rows = lines[start + 2 : lines.index("", start)]

    assert [row for row in rows if row.startswith("M2 Pro Bielik")] == [
        "M2 Pro Bielik 11B 8 bit, 1.5B 4 bit 14.7 47 % 81 % never"
    ]
    assert rows[-1] == "M2 Pro, as published Bielik 11B and three drafts 14.6–15.1 38–53 % 77–92 % above 100 %"
    assert {row.partition(" Bielik")[0].partition(" this")[0] for row in rows[:-1]} == {"M2 Pro", "M4 Max", "M3 Ultra"}
    assert "acceptance 60-70 % 2 65 % 1.51× 1.18× -0.33" in lines


def test_rough_figures_are_called_rough(run: Any) -> None:
    """Where half of the samples lie far apart something else ran; what to type stands there."""
    assert "--force" not in run(figures(spread=0.05)).stdout
    assert "measure again with --force" in run(figures(spread=0.5)).stdout


def test_json_is_what_is_stored(run: Any) -> None:
    """Every figure, and each prediction marked as one."""
    found = figures()
    printed = json.loads(run(found, "--json").stdout)

    assert printed == json.loads(json.dumps(found))
    assert all(one["predicted"] is True for one in printed["predictions"]) and printed["costs"]["predicted"] is False


def test_a_failed_measurement_says_why(run: Any) -> None:
    """Exit code 3 and the worker's own words."""
    result = run(("not_calibrated", "RuntimeError: out of memory"))
    assert (result.exit_code, "out of memory" in result.stderr, result.stdout) == (3, True, "")


def test_no_wait_prints_the_id(broker: redis.Redis, nocka: Nocka, worker: PlayedWorker) -> None:
    """And queues a job of its own kind, with the pair, that measures anew where asked."""
    result = nocka("calibrate", *PAIR, "--force", "--no-wait", "--trust-remote-code", PAIR[3])
    claim = worker.client.store.claim("test/1-a")

    assert claim is not None and (result.exit_code, result.stdout.strip()) == (0, claim.job_id)
    assert (claim.task, claim.cell.target, claim.cell.draft) == (CalibrationTask(force=True), PAIR[1], PAIR[3])
    assert claim.cell.drafter is DrafterKind.CROSS
    assert claim.cell.trust_remote_code == (PAIR[3],)


def test_an_unknown_model_is_refused(nocka: Nocka) -> None:
    """Exit code 2, and nothing is queued."""
    result = nocka("calibrate", "--target", "mini-targt")
    assert (result.exit_code, "mini-target" in result.stderr) == (2, True)
    with Client.open() as client:
        assert client.jobs() == []
