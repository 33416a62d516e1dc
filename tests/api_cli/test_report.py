"""`nocka report` over prepared stores: what it says, what it shows, and that nothing in it comes to life."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from api_cli.advice import words
from api_cli.claims import claims
from api_cli.client import Client
from api_cli.evaluation import Evaluation, evaluate
from api_cli.published import Published, published
from api_cli.report.charts import standalone, ticks
from api_cli.report.page import Material, page
from api_cli.report.plots import acceptance_by_k
from db.parting import Parting
from db.records import Claim
from db.specs import CellSpec, DrafterKind
from tests.api_cli.conftest import Nocka
from tests.api_cli.prepared import Figures, cross, evaluation, items, neural, plain, wobble

GOLDEN = Path(__file__).parent / "golden"
HOSTILE = "</td><script>alert('ż')</script><img src=x onerror=alert(1)>\u202e\x1b[31m"
TWO = (plain(), cross("mini-draft-bytes"))
#: By item, how a drafted answer leaves plain decoding's; of the last nothing was measured.
PARTINGS = {
    "question/4": Parting(token=3, gap=0.0625, near_tie=True),
    "question/5": Parting(token=7, gap=2.5, near_tie=False),
    "question/6": None,
}


def evaluated(job: str) -> Evaluation:
    with Client.open() as client:
        return evaluate(client.results(job), client.cells(job))


# -- three stores, three summaries ---------------------------------------------------------------------------------


def draft_pays() -> str:
    """Context pays, naive does not, the draft with the target's tokenizer is accepted more."""
    speeds = {"naive": (0.6, 1), "context": (1.3, 6), None: (1.2, 8)}

    def figures(claim: Claim) -> Figures:
        if claim.cell.k == 0:
            return Figures(speed=wobble(claim))
        speed, accepted = speeds[claim.cell.translation.value if claim.cell.translation else None]
        return Figures(speed=speed * wobble(claim) ** 2, accepted=accepted)

    cells = (plain(), cross("mini-draft-bytes", "naive"), cross("mini-draft-bytes"), plain(), neural())
    return evaluation(cells, items(8), figures)


def plain_wins() -> str:
    """No k pays; a calibration says how far away it is; three answers differ, one at a near-tie; one result failed."""

    def figures(claim: Claim) -> Figures | tuple[str, str]:
        if claim.item.custom_id == "question/7" and claim.cell.k == 6:
            return "prompt_too_long", "5000 tokens are too many"
        speed = {0: 1.0, 2: 0.9, 4: 0.7, 6: 0.4}[claim.cell.k] * wobble(claim)
        if claim.item.custom_id in PARTINGS and claim.cell.k == 4:
            return Figures(speed=speed, accepted=2, text="inny", parting=PARTINGS[claim.item.custom_id])
        return Figures(speed=speed, accepted=2)

    job = evaluation((plain(), *(cross("mini-draft-bytes", k=k) for k in (2, 4, 6))), items(8), figures)
    with Client.open() as client:
        what = ("mini-target", "mini-draft-bytes", "here")
        client.store.record_calibration("key", what, {"break_even": {"cross": [0.3, 0.41, 0.6, 0.8, 0.9, 1.2, 2, 3]}})
    return job


def best_draft_is_unmeasured() -> str:
    """The draft with the target's tokenizer wins, and only the other one is calibrated."""

    def figures(claim: Claim) -> Figures:
        speed = {"off": 1.0, "cross": 0.8, "neural": 1.5}[claim.cell.drafter.value]
        return Figures(speed=speed * wobble(claim), accepted=6 if claim.cell.translation is None else 3)

    cells = (plain(), cross("mini-draft-bytes"), cross("mini-draft-bytes", k=4), plain(), neural())
    job = evaluation(cells, items(8), figures)
    with Client.open() as client:
        what = ("mini-target", "mini-draft-bytes", "here")
        client.store.record_calibration("key", what, {"break_even": {"cross": [0.3, 0.41, 0.6, 1.2]}})
    return job


def structured_only_and_unfinished() -> str:
    """Six items a cell of which 31 results of 36 are there: hints, and a draft that pays for structured text alone."""

    def figures(claim: Claim) -> Figures:
        pays = claim.item.content_kind == "structured"
        return Figures(speed=1.0 if claim.cell.k == 0 else 1.2 if pays else 0.8)

    return evaluation(TWO, items(6), figures, limit=31)


@pytest.mark.parametrize(
    "store",
    [draft_pays, plain_wins, best_draft_is_unmeasured, structured_only_and_unfinished],
    ids=lambda one: one.__name__,
)
def test_each_store_gives_its_own_summary(nocka: Nocka, tmp_path: Path, store: Callable[[], str]) -> None:
    """The summary and the verdicts on the claims are what tests/api_cli/golden holds, and stand in the page."""
    job = store()
    result = nocka("report", job, "-o", tmp_path / "report.html")
    said = result.stderr.splitlines()[1:]
    found = [f"{claim.verdict}: {claim.statement} ({claim.evidence})" for claim in claims(evaluated(job))]

    golden = (GOLDEN / f"{store.__name__}.txt").read_text("utf-8")
    assert golden == "\n".join([*said, "", *found]) + "\n"
    shown = Page(tmp_path / "report.html").text
    assert all(line.replace("`", "") in shown for line in said if not line.startswith("Not finished yet"))


def test_an_answer_that_is_not_plains_is_listed_with_its_place_and_gap(nocka: Nocka, tmp_path: Path) -> None:
    """Near-tie, DIFFERENT, and DIFFERENT where nothing was measured; the CSV counts the near-ties."""
    job = plain_wins()
    nocka("report", job, "-o", tmp_path / "report.html")
    shown = Page(tmp_path / "report.html").text

    for said in (
        "near-tie at token 3, gap 0.0625",
        "DIFFERENT at token 7, gap 2.5",
        "21 of 24 (1 near-tie, 2 DIFFERENT)",
    ):
        assert said in shown
    rows = list(csv.DictReader(io.StringIO(nocka("report", job, "--format", "csv").stdout)))
    assert ["0", "0", "1", "0"] == [row["near_ties"] for row in rows[:4]]


# -- figures by hand -----------------------------------------------------------------------------------------------


def test_each_answer_is_paired_with_the_plain_one_of_its_own_group() -> None:
    """The second group runs at half the speed, hours later: its draft is still 1.5 times its own baseline."""
    cells = (plain(), cross("mini-draft-bytes"), plain(), cross("mini-draft-polish"))
    rounds: dict[str, list[float]] = {}

    def figures(claim: Claim) -> Figures:
        # Plain cells are equal, so the second group's are told by the order: items are outermost within a group.
        seen = rounds.setdefault(f"{claim.item.custom_id} {claim.cell.k}", [])
        seen.append((1.5 if claim.cell.k else 1.0) * (0.5 if seen else 1.0))
        return Figures(speed=seen[-1], accepted=4)

    found = evaluated(evaluation(cells, items(1), figures))

    assert ["plain", "cross context k=2 mini-draft-bytes", "cross context k=2 mini-draft-polish"] == [
        one.label for one in found.overall
    ]
    medians = [one.speedup.median if one.speedup else None for one in found.overall]
    assert [None, 1.5, 1.5] == medians
    assert (6, 3) == (found.overall[0].done, found.overall[1].done)


def test_acceptance_is_counted_from_the_trace() -> None:
    """Five of twelve in rounds of four: 4, 1, 0. So 5/12, 1 + 5/3 a round, and by position 2/3, 1/3, 1/3, 1/3."""
    job = evaluation((plain(), cross("mini-draft-bytes", k=4)), items(1), lambda _: Figures(speed=1.0, accepted=5))
    drafted = evaluated(job).overall[1]

    assert (pytest.approx(5 / 12), pytest.approx(8 / 3)) == (drafted.acceptance, drafted.acceptance_length)
    assert pytest.approx((2 / 3, 1 / 3, 1 / 3, 1 / 3)) == drafted.per_position


def test_published_figures_are_beside_the_papers_cells_alone() -> None:
    bielik = "bielik-11b-v3-8bit"
    qwen = cross("qwen2.5-1.5b-4bit", target=bielik)

    assert Published(acceptance="44.6 %", speedup="1.06×") == published(qwen, "structured")
    assert Published(acceptance="41.0 %") == published(qwen, "instruction")
    assert Published(speedup="0.40×") == published(cross("llama3.2-1b-4bit", k=6, target=bielik), "question")
    assert Published(acceptance="22.2 %") == published(cross("bielik-1.5b", target=bielik), "question")
    assert published(cross("mini-draft-bytes"), "structured") is None
    assert published(qwen, "poems") is None


def test_published_figures_are_shown_for_one_kind_of_text_too(nocka: Nocka, tmp_path: Path) -> None:
    bielik = "bielik-11b-v3-8bit"
    cells = (plain(bielik), cross("qwen2.5-1.5b-4bit", target=bielik))
    job = evaluation(cells, items(2, ("structured",)), lambda _: Figures(speed=1.0))
    nocka("report", job, "-o", tmp_path / "report.html")

    assert "published 1.06× · 44.6 %" in Page(tmp_path / "report.html").text
    mini = nocka("report", evaluation(TWO, items(2, ("structured",)), lambda _: Figures(speed=1.0))).stdout
    assert "By kind of text" not in mini, "one kind is all of it"


def test_a_cell_whose_k_varies_and_one_that_drafts_nothing_are_in_every_figure_but_those_by_k(nocka: Nocka) -> None:
    """No chart by k has the one, no sentence about drafts the other; both are rivals of the rest."""
    lookup = CellSpec(target="mini-target", drafter=DrafterKind.LOOKUP, k=4)
    cells = (*TWO, lookup, plain().model_copy(update={"batch": 4}))
    job = evaluation(cells, items(8), lambda claim: Figures(speed={0: 1.0, 2: 0.9, 4: 1.2}[claim.cell.k]))
    varying = [cell if cell != lookup else cell.model_copy(update={"k": 0}) for cell in cells]
    with Client.open() as client:
        record, found = client.status(job), evaluate(client.results(job), varying)
    known = {("mini-target", "mini-draft-bytes"): {"cross": [0.3, 0.41], "lookup": [0.2, 0.1]}}
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    shown = page(Material(job=record, found=found, failed=(), break_evens=known, written_at=moment))

    assert ["draft mini-draft-bytes"] == list(acceptance_by_k(found, known))
    assert "Run lookup k=0: 1.20×" in shown and "the best of 3 other cells" in shown
    assert "All 72 other answers are plain decoding&#x27;s own text." in shown
    assert "was not measured here" not in shown


def test_ticks_are_round_and_cover() -> None:
    assert [0.0, 0.2, 0.4, 0.6, 0.8] == ticks(0.0, 0.7)
    assert [0.95, 1.0, 1.05, 1.1, 1.15, 1.2] == ticks(0.97, 1.2)
    assert [5.0, 6.0] == [ticks(5.0, 5.0)[0], ticks(5.0, 5.0)[-1]]


def test_a_chart_by_itself_is_an_image_that_a_browser_reads() -> None:
    """Well-formed XML without anything outside it: both charts under their names, and what pays as the last line."""
    found = evaluated(
        evaluation((*TWO, cross("mini-draft-bytes", k=4), plain(), neural()), items(1), lambda _: Figures(speed=1.0))
    )
    known = {("mini-target", "mini-draft-bytes"): {"cross": [0.3, 0.41, 0.5, 0.6]}}
    drawn = ElementTree.fromstring(standalone(acceptance_by_k(found, known)))
    texts = ["".join(one.itertext()) for one in drawn.iter("{http://www.w3.org/2000/svg}text")]

    assert "{http://www.w3.org/2000/svg}svg" == drawn.tag
    assert {"draft mini-draft-bytes", "draft mini-draft", "neural"} <= set(texts)
    assert texts.index("cross context") + 1 == texts.index("pays above, by cross")
    assert not {"href", "src"} & {name for one in drawn.iter() for name in one.attrib}


# -- the page ------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """The elements and the text of a page, as a browser's parser would find them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_what_a_model_wrote_stays_text(nocka: Nocka, tmp_path: Path) -> None:
    """In answers and in errors: no element, attribute, control character or turned-around line comes of it."""

    def figures(claim: Claim) -> Figures | tuple[str, str]:
        if claim.item.custom_id == "question/0" and claim.cell.k:
            return "prompt_too_long", HOSTILE
        return Figures(speed=1.0, text=HOSTILE if claim.cell.k else "inny")

    job = evaluation(TWO, items(2), figures)
    nocka("report", job, "-o", tmp_path / "report.html")
    found = Page(tmp_path / "report.html")

    assert not {"script", "img", "link", "iframe", "a"} & found.tags
    assert not {"src", "href", "onerror"} & found.attributes
    assert not {"\u202e", "\x1b"} & set(found.text)
    assert found.text.count("<script>alert('ż')</script>") > 2


def test_a_running_job_is_reported_as_far_as_it_is(nocka: Nocka, tmp_path: Path) -> None:
    """90 results of which 37 have ended; and a job of which nothing has."""
    cells = (plain(), *(cross("mini-draft-bytes", k=k) for k in (2, 3, 4, 6)))
    job = evaluation(cells, items(6), lambda claim: Figures(speed=wobble(claim)), limit=37)
    result = nocka("report", job, "-o", tmp_path / "report.html")

    assert (0, True) == (result.exit_code, "37 of 90 so far" in result.stderr)
    assert "37 of 90 so far" in Page(tmp_path / "report.html").text
    empty = nocka("report", evaluation(TWO, items(1), lambda _: Figures(speed=1.0), limit=0))
    assert "Nothing here can be compared with plain decoding yet." in empty.stdout


def test_the_page_says_where_no_calibration_is_stored(nocka: Nocka, tmp_path: Path) -> None:
    job = evaluation(TWO, items(1), lambda _: Figures(speed=1.0))
    assert "No calibration of these models is stored" in nocka("report", job).stdout
    with Client.open() as client:
        what = ("mini-target", "mini-draft-bytes", "here")
        client.store.record_calibration("key", what, {"break_even": {"cross": [0.3, 0.41]}})
    shown = nocka("report", job).stdout
    assert "No calibration" not in shown
    assert "41 %" in shown


def test_a_mini_target_is_warned_about_where_chrf_is_drawn(nocka: Nocka) -> None:
    chrf = "Warning: the target is a mini model"
    assert chrf in nocka("report", evaluation(TWO, items(2), lambda _: Figures(speed=1.0))).stdout
    other = (plain("real"), cross("mini-draft-bytes", target="real"))
    assert chrf not in nocka("report", evaluation(other, items(2), lambda _: Figures(speed=1.0))).stdout


def test_the_same_figures_give_the_same_bytes() -> None:
    job = evaluation(TWO, items(8), lambda claim: Figures(speed=wobble(claim)))
    with Client.open() as client:
        made = [
            page(
                Material(
                    job=client.status(job),
                    found=evaluated(job),
                    failed=(),
                    break_evens={},
                    written_at=dt.datetime.now(dt.UTC).replace(year=2026, month=1, day=1, hour=0, minute=0),
                )
            )
            for _ in range(2)
        ]
        assert words(evaluated(job), client.status(job).counts, {})
    assert made[0] == made[1]


def test_csv_has_a_row_for_each_cell_and_kind(nocka: Nocka, tmp_path: Path) -> None:
    """By --format and by the file's ending; the figures are those of the page."""
    job = evaluation(TWO, items(8), lambda claim: Figures(speed=1.5 if claim.cell.k else 1.0))
    nocka("report", job, "-o", tmp_path / "report.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report.csv").read_text("utf-8"))))

    assert ["all", "all"] + ["structured", "instruction", "question"] * 2 == [row["kind"] for row in rows]
    assert ("24", "1.5", "1.5") == (rows[1]["speedup_items"], rows[1]["speedup_median"], rows[1]["speedup_low"])
    assert ("8", "") == (rows[5]["speedup_items"], rows[5]["speedup_low"])
    assert nocka("report", job, "--format", "csv").stdout == (tmp_path / "report.csv").read_text("utf-8")


def test_parquet_is_the_csv_with_types(nocka: Nocka, tmp_path: Path) -> None:
    """Whole numbers stay whole, what is unknown is null; a terminal gets none of it."""
    parquet = pytest.importorskip("pyarrow.parquet")
    job = evaluation(TWO, items(8), lambda claim: Figures(speed=1.5 if claim.cell.k else 1.0))
    nocka("report", job, "-o", tmp_path / "report.parquet")
    rows = parquet.read_table(tmp_path / "report.parquet").to_pylist()

    assert ["all", "all"] + ["structured", "instruction", "question"] * 2 == [row["kind"] for row in rows]
    assert (24, 1.5, 1.5) == (rows[1]["speedup_items"], rows[1]["speedup_median"], rows[1]["speedup_low"])
    assert (8, None, None) == (rows[5]["speedup_items"], rows[5]["speedup_low"], rows[5]["joules_per_token"])
    assert isinstance(rows[1]["done"], int)
    assert 2 == nocka("report", job, "--format", "parquet").exit_code


def test_parquet_without_pyarrow_says_what_to_install(
    nocka: Nocka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    job = evaluation(TWO, items(1), lambda _: Figures(speed=1.0))
    result = nocka("report", job, "-o", tmp_path / "report.parquet")

    assert (2, True) == (result.exit_code, "pip install 'nocka[parquet]'" in result.stderr)
    assert not (tmp_path / "report.parquet").exists()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


#: Where Chromium itself goes, whatever page is open.
CHROMIUMS_OWN = ("accounts.google.com", "clients2.google.com", "update.googleapis.com")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)")
def test_a_browser_complains_of_nothing_and_asks_the_network_for_nothing(nocka: Nocka, tmp_path: Path) -> None:
    """Chromium's console and its log of requests; a page that does both is told from it."""
    job = plain_wins()
    nocka("report", job, "-o", tmp_path / "report.html")
    (tmp_path / "bad.html").write_text(
        "<script>console.error('x')</script><img src='http://127.0.0.1:9/x.png'>", "utf-8"
    )

    assert ([], []) == browsed(tmp_path / "report.html")
    console, requests = browsed(tmp_path / "bad.html")
    assert console and ["http://127.0.0.1:9/x.png"] == requests


def browsed(path: Path) -> tuple[list[str], list[str]]:
    """What a page put onto the console, and the addresses that it asked for."""
    log = path.with_suffix(".netlog")
    command = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={path.parent / 'profile'}",
    ]
    command += ["--disable-background-networking", "--disable-component-update", "--no-first-run", "--disable-sync"]
    command += [f"--log-net-log={log}", "--enable-logging=stderr", "--dump-dom", path.as_uri()]
    # A preloaded library (the models' OpenBLAS) would keep Chromium's own processes from telling of the console.
    environ = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"LANG": "C.UTF-8"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=90, env=environ)
    events = json.loads(log.read_text("utf-8"))["events"]
    asked = {str(event.get("params", {}).get("url", "")) for event in events}
    console = [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]
    return console, sorted(
        url for url in asked if url.startswith("http") and urlsplit(url).hostname not in CHROMIUMS_OWN
    )
