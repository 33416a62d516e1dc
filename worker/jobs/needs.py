"""What the worker needs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from worker.engine.cost import Costs
from worker.engine.divergence import Divergence
from worker.engine.drafters.base import Drafter
from worker.engine.model import Model
from worker.engine.rows import Sized
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Drafting, Generation, ModelRef, Request
from worker.jobs import batch as together


class Decodes(Protocol):
    """As `worker.engine.decode.Decoder`."""

    config: dict[str, Any]
    blank: bool

    def recall(self, texts: Iterable[str]) -> None: ...

    def generate(self, request: Request, *, interrupted: Callable[[], bool]) -> Generation: ...


class LoadsModels(Protocol):
    """As `worker.engine.build.Models`."""

    loads: int

    def decoder(
        self,
        target: ModelRef,
        drafting: Drafting,
        memory: str,
        costs: Callable[[ModelRef | None], Costs | None],
        asked: Request,
    ) -> Decodes: ...

    def batch(self, target: ModelRef, sized: Sized | None, memory: str, asked: Request) -> together.Decodes: ...

    def tokenizer(self, target: ModelRef) -> Tokenizer: ...

    def divergence(
        self, target: ModelRef, request: Request, expected: Sequence[int], got: Sequence[int]
    ) -> Divergence | None: ...

    def pair(self, target: ModelRef, draft: ModelRef | None) -> tuple[Model, Model | None, dict[str, Drafter]]: ...
