"""An n-gram model built as a job: texts of files in, one file out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from db.records import Claim, Finished
from db.specs import NgramTask
from worker.engine import ngram_file
from worker.engine.tokenizer import Tokenizer
from worker.jobs.corpus import texts

#: The share of the work that reading the texts is; merging the counts is the rest.
READING = 0.9


def build(claim: Claim, task: NgramTask, tokenizer: Tokenizer, progress: Callable[[float], None]) -> Finished:
    """Build what *task* asks for; *progress* hears how far it is (0..1) several times a second, and may raise to stop.

    Raises CorpusError, OSError, ValueError; the file is there whole or not at all.
    """
    began_at = time.monotonic()
    header = ngram_file.build(
        Path(task.output),
        _sequences(task, tokenizer, progress),
        tokenizer.table,
        task.order,
        merging=lambda done: progress(READING + (1 - READING) * done),
    )
    contexts = sum(level["contexts"] for level in header["levels"])
    figures = {
        "progress": 1.0,
        "tokens": header["tokens"],
        "contexts": contexts,
        "bytes": Path(task.output).stat().st_size,
        "seconds": time.monotonic() - began_at,
    }
    return Finished(
        text=f"{task.output}: {contexts} contexts of order {task.order} and less, from {header['tokens']} tokens",
        finish_reason="stop",
        metrics=figures,
        config={"target": claim.cell.target, "task": task.model_dump(mode="json"), "header": header},
    )


def _sequences(
    task: NgramTask, tokenizer: Tokenizer, progress: Callable[[float], None]
) -> Iterator[npt.NDArray[np.uint64]]:
    """The ids of every text, each file after the other."""
    paths = [Path(path) for path in task.corpora]
    total = max(1, sum(path.stat().st_size for path in paths))
    before = 0
    for path in paths:
        for text, read in texts(path, task.column):
            progress(READING * min(1.0, (before + read) / total))
            yield np.array(tokenizer.encode(text), dtype=np.uint64)
        before += path.stat().st_size
