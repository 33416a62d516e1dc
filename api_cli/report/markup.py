"""HTML and SVG from parts. Whatever a model or a user wrote becomes text here, and nothing else."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

#: C0 but for tab and newline, DEL and C1: no character of a page. Bidirectional controls: they turn what follows.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


class Markup(str):
    """Finished markup: never escaped again."""

    __slots__ = ()


Content = str | Markup


def text(content: Content) -> Markup:
    """*content* as it may stand between tags or in an attribute; markup stays as it is."""
    if isinstance(content, Markup):
        return content
    return Markup(html.escape(_UNSAFE.sub("\ufffd", content), quote=True))


def tag(name: str, *content: Content, **attributes: str | float) -> Markup:
    """One element. `class_` is `class`, other underscores are hyphens; numbers get at most two digits."""
    written = "".join(f' {_name(key)}="{text(_value(value))}"' for key, value in attributes.items())
    return Markup(f"<{name}{written}>{''.join(text(one) for one in content)}</{name}>")


def join(parts: Iterable[Content]) -> Markup:
    return Markup("".join(text(part) for part in parts))


def table(headings: Sequence[Content], rows: Iterable[Sequence[Content]], figures_from: int = 1) -> Markup:
    """A table that scrolls by itself where it is wider than the page; columns from *figures_from* on are figures."""

    def row(cells: Sequence[Content], name: str) -> Markup:
        return tag(
            "tr",
            *(tag(name, cell, **({"class_": "figure"} if at >= figures_from else {})) for at, cell in enumerate(cells)),
        )

    body = join(row(cells, "td") for cells in rows)
    return tag("div", tag("table", tag("thead", row(headings, "th")), tag("tbody", body)), class_="wide", tabindex="0")


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def figure(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key


def _value(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
