"""
The shipped worker with a fault in its engine, or none at all: `python -P tests/chaos/chaos_worker.py`.

The faults live here and nowhere in the package, so no setting of a user's can bring them about. `CHAOS_ENGINE=abort`:
the real engine, which dies as Metal does whenever a prompt says PRZERWIJ; `nothing`: answers at once and loads nothing.
`CHAOS_LEASE_S`: how soon another worker is taken for dead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

import worker.engine.build
import worker.engine.decode
from worker import pulse
from worker.__main__ import main
from worker.engine.values import Drafting, Generation, Metrics, ModelRef, Request

NO_WORK = Metrics(
    prompt_tokens=1,
    completion_tokens=1,
    time_to_first_token_s=0.0,
    prefill_s=0.0,
    decode_s=0.001,
    draft_s=0.0,
    verify_s=0.0,
    translate_s=0.0,
    peak_memory_bytes=0,
    rounds=(),
)


class Nothing:
    """Models and decoder in one: whatever is asked, the answer is there."""

    blank = False
    loads = 0
    config: dict[str, Any] = {}

    def decoder(self, target: ModelRef, drafting: Drafting, memory: str, costs: object, asked: Request) -> Nothing:
        return self

    def recall(self, texts: Iterable[str]) -> None:
        raise AssertionError("it has no memory")

    def generate(self, request: Request, *, interrupted: Callable[[], bool]) -> Generation:
        interrupted()
        return Generation(text="tak", tokens=(), finish_reason="stop", metrics=NO_WORK)


def abort_when_asked() -> None:
    decode = worker.engine.decode.Decoder.generate

    def generate(self: worker.engine.decode.Decoder, request: Request, **options: Any) -> Generation:
        if "PRZERWIJ" in (request.text or ""):
            print("command buffer exited with error status", file=sys.stderr, flush=True)
            os.abort()
        return decode(self, request, **options)

    worker.engine.decode.Decoder.generate = generate  # type: ignore[method-assign]


if __name__ == "__main__":
    if os.environ.get("CHAOS_ENGINE") == "abort":
        abort_when_asked()
    elif os.environ.get("CHAOS_ENGINE") == "nothing":
        worker.engine.build.Models = Nothing  # type: ignore[assignment,misc]
    if "CHAOS_LEASE_S" in os.environ:
        pulse.LEASE_S = float(os.environ["CHAOS_LEASE_S"])
        pulse.BEAT_EVERY_S = pulse.LEASE_S / 5
    sys.exit(main())
