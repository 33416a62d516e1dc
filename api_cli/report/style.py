"""How a report looks: dark on white, on a screen, on a phone and in print."""

#: Of a chart, also of one that stands by itself.
CHART_STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --dim: #59636e; --line: #d8dee4; --fill: #f4f6f8; --paper: #fff;
  --blue: #0072b2; --red: #c04a00; --green: #007a5a; }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim); stroke: #fff; stroke-width: 3px; paint-order: stroke; }
svg .strong { font-weight: 600; fill: var(--ink); }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .reference { stroke: var(--ink); stroke-width: 1.2; }
svg .bar { fill: var(--blue); fill-opacity: 0.75; } svg .under { fill: var(--red); }
svg .whisker { stroke: var(--ink); stroke-width: 1.4; fill: none; }
svg .mark { stroke: var(--ink); stroke-width: 2.2; fill: none; }
"""

STYLE = (
    CHART_STYLE
    + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1320px; margin: 0 auto; padding: 16px; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; margin: 0.4em 0 0; }
h2 { font-size: 1.2rem; margin: 1.8em 0 0.5em; }
h3 { font-size: 1rem; margin: 0 0 6px; }
p { margin: 0.4em 0; max-width: 75ch; }
.dim, figcaption { color: var(--dim); font-size: 0.85rem; }
.summary { border-left: 4px solid var(--blue); background: var(--fill); padding: 2px 16px 10px; margin-top: 16px; }
.summary h2 { margin: 0.6em 0 0.3em; }
.lead { font-size: 1.15rem; font-weight: 600; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { text-align: left; vertical-align: top; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; white-space: nowrap; color: var(--dim); }
td { min-width: 3.5em; }
td:first-child { min-width: 10em; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
.figure { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.cell { display: block; min-width: 10em; }
.answer { display: block; min-width: 16em; max-width: 60ch; white-space: pre-wrap; font-size: 0.85rem; }
.yes { color: var(--green); white-space: nowrap; } .no { color: var(--red); display: inline-block; min-width: 5.5em; }
.plots { columns: 3 340px; column-gap: 28px; }
figure { margin: 0 0 28px; max-width: 480px; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; }
code { font: 0.9em ui-monospace, monospace; }
details { margin: 2px 0; } summary { cursor: pointer; }
pre { overflow-x: auto; background: var(--fill); padding: 10px; font-size: 0.8rem; white-space: pre-wrap; }
@media print {
  :root { --ink: #000; --dim: #444; --line: #bbb; --fill: #fff; }
  body { font-size: 10pt; } main { padding: 0; max-width: none; } .wide { overflow: visible; }
  table { font-size: 8pt; } th { white-space: normal; } td, td:first-child { min-width: 0; }
  .cell { min-width: 16em; } th:first-child, td:first-child { position: static; }
  .answer { min-width: 0; font-size: 8pt; }
  .plots { columns: 2; } tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)
