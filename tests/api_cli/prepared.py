"""Stores with an evaluation in them whose figures are known beforehand: no model runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from api_cli.client import Client
from db.parting import Parting
from db.records import Claim, Finished
from db.specs import CellSpec, DrafterKind, ItemSpec, JobKind, JobSpec, Message, Translation

KINDS = ("structured", "instruction", "question")
PLAIN_TOKENS_PER_S = 40.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """What one result comes to: speed over plain, and how many of ten proposed tokens stand."""

    speed: float
    accepted: int = 4
    text: str | None = None
    parting: Parting | None = None


def plain(target: str = "mini-target") -> CellSpec:
    return CellSpec(target=target)


def cross(draft: str, translation: str = "context", k: int = 2, target: str = "mini-target") -> CellSpec:
    return CellSpec(target=target, draft=draft, drafter=DrafterKind.CROSS, translation=Translation(translation), k=k)


def neural(draft: str = "mini-draft", k: int = 2) -> CellSpec:
    return CellSpec(target="mini-target", draft=draft, drafter=DrafterKind.NEURAL, k=k)


def items(per_kind: int, kinds: Sequence[str] = KINDS) -> tuple[ItemSpec, ...]:
    return tuple(
        ItemSpec(
            custom_id=f"{kind}/{number}",
            messages=(Message(role="user", content=f"Pytanie {number}?"),),
            dataset=f"{kind}s",
            content_kind=kind,
        )
        for number in range(per_kind)
        for kind in kinds
    )


def wobble(claim: Claim) -> float:
    """0.98 to 1.02, different for each item and the same at every call."""
    number = int(claim.item.custom_id.rpartition("/")[2])
    return 1.0 + 0.01 * (number % 5 - 2)


def answered(claim: Claim, found: Figures) -> Finished:
    """An answer of ten tokens with the figures that the engine would hand out, rounds of k tokens."""
    speed = PLAIN_TOKENS_PER_S * found.speed
    k = claim.cell.k
    trace = [[k, k, min(k, max(0, found.accepted - at * k))] for at in range(12 // k)] if k else []
    proposed, accepted = sum(step[1] for step in trace), sum(step[2] for step in trace)
    metrics = {
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "tokens_per_s": speed,
        "prefill_s": 0.1,
        "decode_s": 9 / speed,
        "rounds": len(trace),
        "proposed": proposed,
        "accepted": accepted,
        "acceptance_rate": accepted / proposed if proposed else None,
        "trace": trace,
    }
    text = found.text if found.text is not None else f"Odpowiedź na {claim.item.custom_id}"
    config = {"nocka": "0.1.0", "mlx": "0.32", "target": {"source": claim.cell.target}}
    scores = {"chrf": 20 + 30 * found.speed} | (found.parting.as_scores() if found.parting else {})
    return Finished(text=text, finish_reason="length", metrics=metrics, config=config, scores=scores)


def evaluation(
    cells: Sequence[CellSpec],
    inputs: Sequence[ItemSpec],
    figures: Callable[[Claim], Figures | tuple[str, str]],
    limit: int | None = None,
) -> str:
    """Store a job and end the first *limit* of its results, or all; its id."""
    with Client.open() as client:
        spec = JobSpec(kind=JobKind.EVALUATION, name="przygotowane", cells=tuple(cells), items=tuple(inputs))
        job_id = client.store.submit(spec)
        ended = 0
        while (limit is None or ended < limit) and (claim := client.store.claim("test/1-a")) is not None:
            found = figures(claim)
            if isinstance(found, Figures):
                assert client.store.finish(claim, answered(claim, found))
            else:
                assert client.store.fail(claim, *found)
            ended += 1
    return job_id
