"""`make bench` and `make bench-smoke`: every figure from one run, as tables and as JSON.

`--smoke` runs a little, compares what must come out the same with bench/expected.json and exits 1 where it does not.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import across, beside_mlx_lm, forms, host_time, never_slower, ngrams, oracle, throughput
from bench.report import Report, show
from bench.timing import PAIRS
from bench.workloads import REPLAY, SAMPLED
from worker.engine.model import Model, load
from worker.engine.values import ModelRef

ROOT = Path(__file__).parents[1]
EXPECTED = Path(__file__).parent / "expected.json"
FOREIGN = ("mini-draft-bytes", "mini-draft-polish")
SMOKE = across.Size(passages=3, max_tokens=40, lengths=(4,), workloads=(REPLAY, SAMPLED))


def mini(name: str) -> Model:
    """One of the mini family, in float32."""
    return load(ModelRef(source=str(ROOT / "worker" / "mini" / name), dtype="float32"))


def smoke(target: Model) -> dict[int, Callable[[], Report]]:
    """A little of each figure that is the same everywhere."""
    drafts = {name: mini(name) for name in FOREIGN}
    return {
        3: lambda: across.report(target, drafts, SMOKE, assisted=False),
        4: lambda: oracle.report(20),
        6: lambda: forms.report(target, documents=5, timed=False),
        7: lambda: ngrams.report(target, count=3, max_tokens=48, timed=False),
    }


def full(target: Model) -> dict[int, Callable[[], Report]]:
    """Everything."""
    drafts = {name: mini(name) for name in FOREIGN}
    targets = {"mini-target": (target, 64)}
    smollm2 = ROOT / ".models" / "smollm2-135m"
    if smollm2.is_dir():
        targets["smollm2-135m"] = (load(ModelRef(source=str(smollm2), dtype="float32")), 12)
    tokenizers = {name: draft.tokenizer for name, draft in drafts.items()}
    return {
        1: lambda: beside_mlx_lm.plain(targets, PAIRS, count=8),
        2: lambda: beside_mlx_lm.same_tokenizer(target, mini("mini-draft"), PAIRS, count=8, max_tokens=64),
        3: lambda: across.report(target, drafts, across.Size(passages=8, max_tokens=96)),
        4: oracle.report,
        5: lambda: host_time.report(target.tokenizer, tokenizers),
        6: lambda: forms.report(target),
        7: lambda: ngrams.report(target, count=8, max_tokens=128),
        8: lambda: never_slower.report(target, drafts["mini-draft-bytes"], items=10, max_tokens=64),
        9: lambda: throughput.report(target, drafts["mini-draft-bytes"], pairs=7, together=8, max_tokens=48),
    }


def main() -> int:
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 150)
    figures = (smoke if options.smoke else full)(mini("mini-target"))
    reports = []
    for figure, measure in figures.items():
        if options.figures and figure not in options.figures:
            continue
        reports.append(measure())
        show(reports[-1], console)
    if options.json:
        written = {"machine": _machine(), "figures": [report.as_json() for report in reports]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if not options.smoke:
        return 0
    return _compare([report for report in reports if report.rows], options.accept, console)


def _compare(reports: list[Report], accept: bool, console: Console) -> int:
    """Hold *reports* against bench/expected.json, or write it anew from them. What was not measured stays as it is."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    if accept:
        expected |= {str(report.figure): report.fixed_cells() for report in reports}
        EXPECTED.write_text(json.dumps(expected, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    differences = [each for report in reports for each in report.differences(expected.get(str(report.figure), {}))]
    for difference in differences:
        console.print(f"[red]differs[/]  {difference}")
    if not differences:
        console.print(f"as expected: figures {', '.join(str(report.figure) for report in reports)}")
    return 1 if differences else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="nocka beside what a user would pick instead")
    parser.add_argument("--smoke", action="store_true", help="a little of each, compared with bench/expected.json")
    parser.add_argument("--accept", action="store_true", help="with --smoke: write bench/expected.json anew")
    parser.add_argument("--figures", type=int, nargs="+", metavar="N", help="only these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    return parser.parse_args()


def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("mlx", "mlx-lm", "transformers")},
    }


if __name__ == "__main__":
    sys.exit(main())
