"""
A small real engine with the interface of `worker.engine`: it answers with the prompt's own words, one every few ms.

The prompt says how it behaves, the target's name whether it loads. What it did is written down beside the store, line
by line, so that a test can tell what ran, and how often, over any number of processes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from worker.engine.errors import ModelNotLoadable, PromptTooLong
from worker.engine.values import Drafting, Generation, Metrics, ModelRef, Request

WORD_S = 0.01


class Journal:
    """Lines `<event> <custom_id>` in one file; each survives the death of its writer."""

    def __init__(self, home: Path) -> None:
        self._path = home / "journal.txt"

    def write(self, event: str, custom_id: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{event} {custom_id}\n".encode())
        os.close(descriptor)

    def read(self) -> list[tuple[str, str]]:
        if not self._path.exists():
            return []
        lines = self._path.read_text("utf-8").splitlines()
        return [(event, custom_id) for event, _, custom_id in (line.partition(" ") for line in lines)]

    def count(self, event: str) -> int:
        return sum(event == written for written, _ in self.read())


class EchoModels:
    """Loads nothing. Target `absent` cannot be loaded until there is a file `mended` in the home; `broken` crashes."""

    def __init__(self, home: Path, on_half: Callable[[], None] = lambda: None) -> None:
        self._home = home
        self._on_half = on_half
        self._remembered: set[str] = set()
        self.loads = 0

    def decoder(self, target: ModelRef, drafting: Drafting, memory: str, costs: object, asked: Request) -> EchoDecoder:
        if target.source == "absent" and not (self._home / "mended").exists():
            raise ModelNotLoadable("needs 99 GB, there are 2; type: nocka models")
        if target.source == "broken":
            raise KeyError("model_type")
        blank = drafting.drafter == "suffix" and memory not in self._remembered
        self._remembered.add(memory)
        return EchoDecoder(Journal(self._home), self._on_half, target, blank)


class EchoDecoder:
    """Words in, the same words out."""

    def __init__(self, journal: Journal, on_half: Callable[[], None], target: ModelRef, blank: bool) -> None:
        self._journal = journal
        self.blank = blank
        self._on_half = on_half
        self.config: dict[str, Any] = {"target": {"source": target.source, "dtype": target.dtype}}

    def recall(self, texts: Iterable[str]) -> None:
        self._journal.write("recalled", "+".join(texts) or "nothing")

    def generate(self, request: Request, *, interrupted: Callable[[], bool] = lambda: False) -> Generation:
        self._journal.write("begin", request.custom_id)
        words = (request.text or " ".join(turn.content for turn in request.turns or ())).split()
        if words[0] == "TOO-LONG":
            raise PromptTooLong("9 tokens, and there is room for 8")
        if words[0] == "CRASH":
            raise ValueError(f"cannot digest {request.text}")
        if words[0] == "MEMORY":
            raise MemoryError
        if words[0] == "ABORT":
            print("command buffer exited with error status", file=sys.stderr, flush=True)
            os.abort()
        deaf = words[0] == "DEAF"
        said: list[str] = []
        for position, word in enumerate(words):
            if not deaf and interrupted():
                self._journal.write("interrupted", request.custom_id)
                return _generation(said, "interrupted")
            if position == len(words) // 2:
                self._on_half()
            time.sleep(WORD_S)
            said.append(word)
        self._journal.write("end", request.custom_id)
        return _generation(said, "stop")


def _generation(words: list[str], finish_reason: str) -> Generation:
    metrics = Metrics(
        prompt_tokens=len(words),
        completion_tokens=len(words),
        time_to_first_token_s=WORD_S,
        prefill_s=0.0,
        decode_s=WORD_S * len(words),
        draft_s=0.0,
        verify_s=0.0,
        translate_s=0.0,
        peak_memory_bytes=0,
        rounds=(),
    )
    return Generation(text=" ".join(words), tokens=(), finish_reason=finish_reason, metrics=metrics)
