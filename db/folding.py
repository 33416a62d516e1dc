"""Texts as the words by which they are found: case, accents and the Polish letters set aside; pure."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Iterator

#: A passage is indexed by itself, so that no text is too long for an index. Words that must stand together, must so
#: in one passage.
PASSAGE_CHARACTERS = 20_000
#: A longer word is indexed by its beginning: Postgres takes up to 2,046 bytes.
_WORD_CHARACTERS = 500
_WORD = re.compile(r"[^\W_][^\W_\u0300-\u036f]*(?:[\u0300-\u036f]+[^\W_\u0300-\u036f]*)*")
_TERM = re.compile(r'"([^"]*)"?(\*?)|([^\s"]+)')
#: Letters that Unicode does not take apart into a letter and its stroke.
_STROKED = str.maketrans("łđøħŧı", "ldohti")


class _Folds(dict[int, str]):
    """A character -> how it is looked for; filled as characters occur."""

    def __missing__(self, code: int) -> str:
        apart = unicodedata.normalize("NFD", chr(code).casefold())
        folded = "".join(each for each in apart if not unicodedata.combining(each)).translate(_STROKED)
        self[code] = folded
        return folded


_FOLDS = _Folds()


def fold(text: str) -> str:
    """*text* in small letters without marks: `Łódź` is `lodz`."""
    return text.translate(_FOLDS)


def words(text: str) -> list[str]:
    """The folded words of *text* in order."""
    return [word[:_WORD_CHARACTERS] for word in _WORD.findall(fold(text))]


def passages(text: str) -> Iterator[tuple[int, str]]:
    """*text* in passages, each with where it starts; cut at a space where there is one. An empty text is one."""
    start = 0
    while True:
        end = start + PASSAGE_CHARACTERS
        if end < len(text):
            space = max(text.rfind(" ", start, end), text.rfind("\n", start, end))
            end = space + 1 if space > start else end
        yield start, text[start:end]
        if end >= len(text):
            return
        start = end


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """Words that must follow each other. Strictly read-only."""

    words: tuple[str, ...]
    #: Whether the last of them may go on.
    prefix: bool

    def begins(self, found: list[str], at: int) -> bool:
        """Whether *found* has it from *at* on."""
        here = found[at : at + len(self.words)]
        if len(here) < len(self.words) or here[:-1] != list(self.words[:-1]):
            return False
        return here[-1].startswith(self.words[-1]) if self.prefix else here[-1] == self.words[-1]


def terms(asked: str) -> list[Term]:
    """What a person typed: words, `"words in a row"`, and `begin*`; every one of them must occur."""
    made = []
    for quoted, star, bare in _TERM.findall(asked):
        prefix = bool(star) or bare.endswith("*")
        if found := tuple(words(quoted or bare)):
            made.append(Term(words=found, prefix=prefix))
    return made


def snippet(text: str, asked: list[Term], width: int = 160) -> list[tuple[str, bool]]:
    """About *width* characters of *text* around its first hit, in pieces: each with whether it is a hit."""
    spots = [spot.span() for spot in _WORD.finditer(text)]
    found = [fold(text[begin:end])[:_WORD_CHARACTERS] for begin, end in spots]
    hits = []
    for at in range(len(found)):
        length = max((len(term.words) for term in asked if term.begins(found, at)), default=0)
        if length:
            hits.append((spots[at][0], spots[at + length - 1][1]))
    middle = hits[0][0] if hits else 0
    begin = _word_start(text, max(0, middle - width // 3))
    end = min(len(text), begin + width)
    pieces, at = [("…", False)] if begin else [], begin
    for hit_begin, hit_end in hits:
        if at <= hit_begin < end:
            pieces += [(text[at:hit_begin], False), (text[hit_begin:hit_end], True)]
            at = hit_end
    pieces.append((text[at : max(at, end)] + ("…" if max(at, end) < len(text) else ""), False))
    return [(piece, hit) for piece, hit in pieces if piece]


def _word_start(text: str, at: int) -> int:
    """The start of a word at or soon after *at*."""
    space = text.find(" ", at, at + 20) if at else -1
    return at if space < 0 else space + 1
