"""An n-gram model over one tokenizer's tokens, in one memory-mapped file: for each context its likeliest next token.

Layout, little-endian: a header of 4,096 bytes (a line that names the format, then JSON), then for each order from 2 on
contexts (uint64, ascending), next tokens, their counts and their contexts' counts (uint32 each), padded to 8 bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import mmap
import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from worker.engine.errors import ModelNotLoadable
from worker.engine.ngram_counts import Counted, GramCounts, Longs

MAGIC = b"nocka-ngram\n"
VERSION = 1
HEADER_BYTES = 4096
#: The orders that can be built; how many fit depends on the vocabulary's size too.
ORDERS = range(2, 6)


def table_hash(table: Sequence[bytes]) -> str:
    """What ties a file to its tokenizer: a hash of the bytes of every token, in order."""
    digest = hashlib.sha256()
    for piece in table:
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return digest.hexdigest()


def token_bits(vocab_size: int) -> int:
    """Bits that hold any token of a vocabulary."""
    return max(1, (vocab_size - 1).bit_length())


@dataclasses.dataclass(frozen=True)
class Guess:
    """The likeliest next token behind a context of `order` - 1 tokens: seen `count` times in `total`."""

    token: int
    count: int
    total: int
    order: int

    @property
    def share(self) -> float:
        """The chance that it comes, 0..1, with one miss more than was seen, as little evidence proves little."""
        return self.count / (self.total + 1)


class NgramFile:
    """A built model, mapped. Strictly read-only."""

    def __init__(self, path: Path) -> None:
        """Open *path*. Raise ModelNotLoadable where it is missing, cut off or of another version."""
        try:
            with path.open("rb") as file:
                self.header = _read_header(file.read(HEADER_BYTES))
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            levels = [(int(level["order"]), int(level["contexts"])) for level in self.header["levels"]]
            size = HEADER_BYTES + sum(_level_bytes(count) for _, count in levels)
            if len(self._map) != size:
                raise ValueError(f"it has {len(self._map)} bytes of {size}")
            self.order = int(self.header["order"])
            self._bits = int(self.header["token_bits"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelNotLoadable(
                f"{path} is no n-gram file that can be used: {error}; "
                "build one: nocka ngram build CORPUS... -o FILE --target NAME"
            ) from error
        self._levels = self._mapped(levels)

    @property
    def tokenizer_hash(self) -> str:
        return str(self.header["tokenizer_sha256"])

    def guess(self, tokens: Sequence[int]) -> Guess | None:
        """The likeliest token behind *tokens*, by the longest context that was seen; None where none was."""
        for order, contexts, nexts, counts, totals in self._levels:
            if len(tokens) < order - 1:
                continue
            context = 0
            for token in tokens[len(tokens) - order + 1 :]:
                context = context << self._bits | token
            at = bisect_left(contexts, context)
            if at < len(contexts) and contexts[at] == context:
                return Guess(nexts[at], counts[at], totals[at], order)
        return None

    def _mapped(
        self, levels: Sequence[tuple[int, int]]
    ) -> list[tuple[int, memoryview, memoryview, memoryview, memoryview]]:
        """Views of each level's arrays, the highest order first."""
        whole, start, found = memoryview(self._map), HEADER_BYTES, []
        for order, count in levels:
            if count == 0:
                continue
            views = [whole[start : start + 8 * count].cast("Q")]
            for column in range(3):
                first = start + (8 + 4 * column) * count
                views.append(whole[first : first + 4 * count].cast("I"))
            found.append((order, views[0], views[1], views[2], views[3]))
            start += _level_bytes(count)
        return found[::-1]


def _read_header(data: bytes) -> dict[str, Any]:
    if not data.startswith(MAGIC):
        raise ValueError("it does not begin as one")
    header = json.loads(data[len(MAGIC) :])
    if header["version"] != VERSION:
        raise ValueError(f"it has version {header['version']}, and this nocka reads version {VERSION}")
    return dict(header)


def _level_bytes(contexts: int) -> int:
    return (20 * contexts + 7) // 8 * 8


def build(
    path: Path,
    texts: Iterable[Sequence[int] | Longs],
    table: Sequence[bytes],
    order: int = 3,
    min_count: int = 2,
    merging: Callable[[float], None] = lambda done: None,
) -> dict[str, Any]:
    """Write the model of *texts*, each a sequence of ids of the tokenizer with byte *table*; returns its header.

    Contexts seen fewer than *min_count* times are left out. *path* appears whole or not at all. Memory is bounded
    (about 450 MB at order 3); the counts go through its folder, 16 bytes a different gram. *merging* hears how far
    (0..1) the part after the last text is. Raises ValueError for an order that does not fit, OSError.
    """
    bits = token_bits(len(table))
    if order not in ORDERS or order * bits > 64:
        most = min(ORDERS[-1], 64 // bits)
        raise ValueError(f"the order is 2 to {most} for a vocabulary of {len(table)} tokens, not {order}")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        counts = [GramCounts(each, bits, Path(folder)) for each in range(2, order + 1)]
        token_count = 0
        for ids in texts:
            token_count += len(ids)
            array = np.asarray(ids, dtype=np.uint64)
            for each in counts:
                each.add(array)
        levels = []
        for index, each in enumerate(counts):
            level = _Level(Path(folder), index + 2, bits, min_count)
            for done, block in each.merged():
                level.add(block)
                merging((index + done) / len(counts))
            levels.append(level)
        header = {
            "version": VERSION,
            "order": order,
            "tokenizer_sha256": table_hash(table),
            "vocab_size": len(table),
            "token_bits": bits,
            "tokens": token_count,
            "min_count": min_count,
            "levels": [{"order": level.order, "contexts": level.contexts} for level in levels],
        }
        _assemble(path, Path(folder), header, levels)
    return header


class _Level:
    """The contexts of one order, on their way to the file, column by column."""

    COLUMNS = ("contexts", "nexts", "counts", "totals")

    def __init__(self, folder: Path, order: int, bits: int, min_count: int) -> None:
        self.order = order
        self.contexts = 0
        self._bits = np.uint64(bits)
        self._min_count = min_count
        self._paths = [folder / f"{order}.{column}" for column in self.COLUMNS]

    def add(self, block: Counted) -> None:
        """Add a block behind the others: of each context the commonest next token, the smaller id where two are."""
        contexts = block.grams >> self._bits
        firsts = np.flatnonzero(np.concatenate([[True], contexts[1:] != contexts[:-1]]))
        totals = np.add.reduceat(block.counts, firsts)
        most = np.maximum.reduceat(block.counts, firsts)
        sizes = np.diff(np.append(firsts, len(contexts)))
        winners = np.flatnonzero(block.counts == np.repeat(most, sizes))
        groups = np.repeat(np.arange(len(firsts)), sizes)[winners]
        best = winners[np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))]
        kept = totals >= self._min_count
        token_mask = (np.uint64(1) << self._bits) - np.uint64(1)
        columns = [contexts[best], block.grams[best] & token_mask, most, totals]
        for path, column, kind in zip(self._paths, columns, ("<u8", "<u4", "<u4", "<u4"), strict=True):
            with path.open("ab") as file:
                file.write(np.minimum(column[kept], np.iinfo(kind).max).astype(kind).tobytes())
        self.contexts += int(kept.sum())

    def copy_to(self, file: IO[bytes]) -> None:
        """Write every column, padded to 8 bytes."""
        for path in self._paths:
            if path.exists():
                with path.open("rb") as column:
                    while part := column.read(1 << 20):
                        file.write(part)
        file.write(bytes(_level_bytes(self.contexts) - 20 * self.contexts))


def _assemble(path: Path, folder: Path, header: dict[str, Any], levels: Sequence[_Level]) -> None:
    """Write the file beside its place and move it there."""
    whole = folder / "whole"
    with whole.open("wb") as file:
        file.write((MAGIC + json.dumps(header).encode()).ljust(HEADER_BYTES - 1) + b"\n")
        for level in levels:
            level.copy_to(file)
        file.flush()
        os.fsync(file.fileno())
    whole.replace(path)
