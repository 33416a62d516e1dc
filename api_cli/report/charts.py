"""Three kinds of chart as inline SVG: values by row, lines, points. Pure: the same figures give the same bytes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence

from api_cli.report.markup import Markup, join, tag
from api_cli.report.style import CHART_STYLE

#: As wide as a phone, so that letters keep their size there.
WIDTH = 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 10, 36
_PLOT_HEIGHT, _ROW_HEIGHT = 200, 34
_GUTTER, _HEADING = 20, 20
_LEGEND = _PLOT_HEIGHT + 6
#: Told apart by people who see few colours (Okabe and Ito), and in print by dashes and shapes.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#555555")
_DASHES = ("none", "6 3", "2 2", "8 3 2 3", "1 3", "10 2", "4 4")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Strictly read-only. One value with what is known around it: `low` and `high` a whisker, `mark` a limit."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    mark: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Strictly read-only. Named points, from left to right where they are joined."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """Strictly read-only. What is along an axis and how its figures are written."""

    title: str
    write: Callable[[float], str] = "{:g}".format
    least: float | None = None
    most: float | None = None


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round figures that cover *low* to *high*."""
    span = (high - low) or abs(high) or 1.0
    rough = span / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(at * step, 10) for at in range(first, max(last, first + 1) + 1)]


def rows(values: Sequence[Row], axis: Axis, reference: float | None = None) -> Markup:
    """A bar a row, from zero or from *reference*, its label above it; whiskers and limits on it."""
    ends = [end for row in values for end in (row.value, row.low, row.high, row.mark) if end is not None]
    start = 0.0 if reference is None else reference
    shown = ticks(
        min([axis.least if axis.least is not None else start, start, *ends]), max([start, *ends, axis.most or start])
    )
    height = len(values) * _ROW_HEIGHT + _TOP + _BOTTOM
    across = _scale(shown, 20.0, WIDTH - 22.0)
    parts = [_grid_across(shown, across, axis, height)]
    if reference is not None:
        x = across(reference)
        parts.append(tag("line", x1=x, x2=x, y1=_TOP, y2=height - _BOTTOM, class_="reference"))
    for at, row in enumerate(values):
        parts.append(_row(row, _TOP + at * _ROW_HEIGHT, across, start, axis))
    return _svg(parts, height, f"{axis.title}: " + "; ".join(f"{row.label} {axis.write(row.value)}" for row in values))


def lines(series: Sequence[Series], along: Axis, up: Axis) -> Markup:
    """Points joined, a colour and a dash for each series, whose names stand under the chart."""
    return _plane(series, along, up, joined=True)


def points(series: Sequence[Series], along: Axis, up: Axis) -> Markup:
    """Points by themselves."""
    return _plane(series, along, up, joined=False)


def standalone(charts: Mapping[str, Markup]) -> Markup:
    """*charts* side by side under their names, as an SVG file of its own: with its style, on white."""
    heights = [float(re.findall(r'viewBox="0 0 \S+ (\S+)"', chart)[0]) for chart in charts.values()]
    width, height = (WIDTH + _GUTTER) * len(charts), _HEADING + max(heights)
    parts = [tag("style", Markup(CHART_STYLE)), tag("rect", width="100%", height="100%", fill="#fff")]
    for at, ((name, chart), own) in enumerate(zip(charts.items(), heights, strict=True)):
        x = (WIDTH + _GUTTER) * at
        parts.append(tag("text", name, x=x + _LEFT, y=14, class_="strong"))
        parts.append(
            Markup(chart.replace("<svg ", f'<svg x="{x}" y="{_HEADING}" width="{WIDTH}" height="{own:g}" ', 1))
        )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}"'
    return Markup(f'{opening} height="{height:g}">{join(parts)}</svg>\n')


def _plane(series: Sequence[Series], along: Axis, up: Axis, joined: bool) -> Markup:
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    x_ticks = sorted(set(xs)) if joined and len(set(xs)) <= 12 else ticks(min(xs), max(xs))
    y_ticks = ticks(min([*ys, *_known(up.least)]), max([*ys, *_known(up.most)]))
    height = _LEGEND + 18 * len(series)
    bottom = _PLOT_HEIGHT - _BOTTOM
    across = _scale(
        x_ticks if len(x_ticks) > 1 else [x_ticks[0] - 1, x_ticks[0] + 1], _LEFT + 6.0, WIDTH - _RIGHT - 6.0
    )
    upward = _scale(y_ticks, float(bottom), float(_TOP))
    parts = []
    for tick in y_ticks:
        y = upward(tick)
        parts.append(tag("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(tag("text", up.write(tick), x=_LEFT - 5, y=y + 4, text_anchor="end"))
    parts += [tag("text", along.write(tick), x=across(tick), y=bottom + 15, text_anchor="middle") for tick in x_ticks]
    parts.append(tag("text", along.title, x=(_LEFT + WIDTH - _RIGHT) / 2, y=bottom + 31, text_anchor="middle"))
    for at, one in enumerate(series):
        places = [(across(x), upward(y)) for x, y in one.points]
        if joined:
            parts.append(_path(places, at))
        parts += [_dot(x, y, at, 3.2 if joined else 2.2) for x, y in places]
        parts += [
            _dot(_LEFT, _LEGEND + 18 * at + 6, at, 4),
            tag("text", one.name, x=_LEFT + 10, y=_LEGEND + 18 * at + 10),
        ]
    return _svg(parts, height, f"{up.title} by {along.title}: " + ", ".join(one.name for one in series))


def _path(places: Sequence[tuple[float, float]], at: int) -> Markup:
    written = "M" + "L".join(f"{x:.2f} {y:.2f}" for x, y in places)
    return tag(
        "path", d=written, fill="none", stroke=_color(at), stroke_width=1.8, stroke_dasharray=_DASHES[at % len(_DASHES)]
    )


def _dot(x: float, y: float, at: int, radius: float) -> Markup:
    """A circle, a square or a diamond."""
    if at % 3 == 0:
        return tag("circle", cx=x, cy=y, r=radius, fill=_color(at), fill_opacity=0.8)
    turned = {"transform": f"rotate(45 {x:.2f} {y:.2f})"} if at % 3 == 2 else {}
    side = radius * 1.8
    return tag(
        "rect", x=x - side / 2, y=y - side / 2, width=side, height=side, fill=_color(at), fill_opacity=0.8, **turned
    )


def _row(row: Row, top: float, across: Callable[[float], float], start: float, axis: Axis) -> Markup:
    x, y = across(row.value), top + 22.0
    begin = across(start)
    faded = "bar" if row.value >= start else "bar under"
    parts = [
        tag("text", row.label, x=10, y=top + 12),
        tag("text", axis.write(row.value), x=WIDTH - 12, y=top + 12, text_anchor="end", class_="strong"),
        tag("rect", x=min(x, begin), y=y - 5, width=max(abs(x - begin), 0.5), height=10, class_=faded),
    ]
    if row.low is not None and row.high is not None:
        parts.append(tag("path", d=f"M{across(row.low):.2f} {y}H{across(row.high):.2f}", class_="whisker"))
        parts += [tag("path", d=f"M{across(end):.2f} {y - 4}v8", class_="whisker") for end in (row.low, row.high)]
    if row.mark is not None:
        parts.append(tag("path", d=f"M{across(row.mark):.2f} {y - 8}v16", class_="mark"))
    return join(parts)


def _grid_across(shown: Sequence[float], across: Callable[[float], float], axis: Axis, height: float) -> Markup:
    parts = []
    for tick in shown:
        x = across(tick)
        parts.append(tag("line", x1=x, x2=x, y1=_TOP, y2=height - _BOTTOM, class_="grid"))
        parts.append(tag("text", axis.write(tick), x=x, y=height - _BOTTOM + 15, text_anchor="middle"))
    return join([*parts, tag("text", axis.title, x=WIDTH / 2, y=height - 5, text_anchor="middle")])


def _scale(shown: Sequence[float], begin: float, end: float) -> Callable[[float], float]:
    low, high = shown[0], shown[-1]
    return lambda value: begin + (value - low) / ((high - low) or 1.0) * (end - begin)


def _svg(parts: Sequence[Markup], height: float, said: str) -> Markup:
    return tag(
        "svg",
        tag("title", said),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
    )


def _color(at: int) -> str:
    return COLORS[at % len(COLORS)]


def _known(value: float | None) -> list[float]:
    return [] if value is None else [value]
