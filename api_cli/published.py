"""What was published of the grid that `--preset paper` repeats. Pure.

"Cross-family speculative decoding for Polish on Apple silicon" (arXiv 2604.16368): Bielik 11B in 8 bits on an M2 Pro,
about 50 prompts a cell.
"""

from __future__ import annotations

import dataclasses

from db.specs import CellSpec, DrafterKind, Translation

SOURCE = "arXiv 2604.16368, Bielik 11B 8 bit on an M2 Pro"
#: Its texts, by nocka's kinds: Polish Wikipedia, pl_alpaca, short synthetic questions.
KINDS = ("structured", "instruction", "question")
#: k = 2, context-aware: acceptance of each draft on each kind, in percent.
_ACCEPTANCE = {"bielik": (31.1, 23.9, 22.2), "llama": (42.0, 36.0, 36.5), "qwen": (44.6, 41.0, 42.7)}
#: k = 2, context-aware, Wikipedia: speed over plain decoding.
_SPEEDUP = {"bielik": 0.87, "llama": 1.06, "qwen": 1.06}
#: Of any draft by k; the paper gives no other figures for these.
_SPEEDUP_BY_K = {4: "0.59–0.70×", 6: "0.40×"}
#: Acceptance above which k pays on that machine.
BREAK_EVEN = {2: "38–53 %", 4: "77–92 %", 6: "above 100 %"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """Strictly read-only. What the paper says of a cell, as it says it; None where it says nothing."""

    acceptance: str | None = None
    speedup: str | None = None


def published(cell: CellSpec, kind: str) -> Published | None:
    """The paper's figures for *cell* on texts of *kind*; None for a cell that is not of its grid."""
    draft = _draft(cell)
    if draft is None or kind not in KINDS:
        return None
    acceptance, speedup = None, _SPEEDUP_BY_K.get(cell.k)
    if cell.translation is Translation.NAIVE and draft != "bielik":
        acceptance, speedup = "3–10 %", "0.58–0.70×"
    if cell.translation is Translation.CONTEXT and cell.k == 2:
        acceptance = f"{_ACCEPTANCE[draft][KINDS.index(kind)]:.1f} %"
        speedup = f"{_SPEEDUP[draft]:.2f}×" if kind == "structured" else None
    return Published(acceptance=acceptance, speedup=speedup) if acceptance or speedup else None


def _draft(cell: CellSpec) -> str | None:
    """Which of the paper's drafts *cell* has, under its target."""
    if cell.drafter is not DrafterKind.CROSS or "bielik-11b" not in cell.target.lower():
        return None
    name = (cell.draft or "").lower().rstrip("/").rsplit("/", 1)[-1]
    sized = {"bielik": "1.5b", "llama": "1b", "qwen": "1.5b"}
    return next((draft for draft, size in sized.items() if name.startswith(draft) and size in name), None)
