"""Joules of each result where the machine tells, nothing where it does not, and a word about why."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import redis
from sqlalchemy import text

from db.settings import Settings
from db.specs import CellSpec, ItemSpec, JobKind, JobSpec
from db.store import Store
from db.transactions import reading
from tests.engine.conftest import GREEDY, ask
from worker.engine import energy
from worker.engine.build import Models
from worker.engine.conditions import Conditions, low_power_mode, thermal_pressure
from worker.engine.decode import Decoder
from worker.engine.energy import APPLE_PARTS, Apple, Meter, NoCounter, Rapl, Zone, open_counter
from worker.jobs.slice import Shift
from worker.models_path import target_ref
from worker.resident import ResidentWorker
from worker.wakeups import Wakeups, connect

#: A draft of the mini family makes a small target.
TARGET = "mini-draft"
PMSET = """System-wide power settings:
Currently in use:
 standby              1
 Sleep On Power Button 1
 hibernatefile        /var/vm/sleepimage
 powernap             1
 networkoversleep     0
 disksleep            10
 sleep                1 (sleep prevented by powerd)
 hibernatemode        3
 ttyskeepawake        1
 displaysleep         10
 tcpkeepalive         1
 lowpowermode         {}
 womp                 0
"""


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


class Counting:
    """A counter that each look at it moves on by *step_j*."""

    def __init__(self, step_j: float) -> None:
        self.step_j = step_j
        self.used_j = 100.0

    def joules(self) -> float:
        self.used_j += self.step_j
        return self.used_j


class Watt:
    """A machine that takes one watt."""

    def joules(self) -> float:
        return time.monotonic()


class Said:
    """A counter that says one thing after the other."""

    def __init__(self, *joules: float) -> None:
        self._left = list(joules)

    def joules(self) -> float:
        return self._left.pop(0)


def run(store: Store, meter: Meter | None, models: Models, batch: int = 1) -> str:
    """A job of four items under *meter*; its id."""
    decoding = {"max_tokens": 6, "temperature": 0.7, "seed": 7}
    cell = CellSpec.model_validate({"target": TARGET, "batch": batch, "decoding": decoding, "dtype": "float32"})
    items = tuple(ItemSpec(custom_id=f"i{number}", text=f"Litwo {number}") for number in range(4))
    job_id = store.submit(JobSpec(kind=JobKind.GENERATION, name="dżule", cells=(cell,), items=items))
    Shift(store, models, Wakeups(connect("unix:///nowhere")), "here/1", meter=meter).advance()
    return job_id


def energies(store: Store, job_id: str) -> Sequence[float | None]:
    """As the view shows them."""
    with reading(store.engine) as connection:
        found = connection.execute(text("SELECT energy_j FROM v_results WHERE job = :job"), {"job": job_id})
        return [row.energy_j for row in found]


def test_each_result_says_what_it_took(store: Store, models: Models) -> None:
    """In all and for each token, with the machine's idle power and conditions beside it; the views have it."""
    meter = Meter(Counting(1.5), lambda: Conditions("nominal", False))
    meter.idle_w = 2.25
    job_id = run(store, meter, models)
    for result in store.results(job_id):
        assert result.metrics["energy_j"] == 1.5
        assert result.metrics["joules_per_token"] == 1.5 / result.metrics["completion_tokens"]
        assert (result.metrics["idle_w"], result.metrics["thermal"], result.metrics["low_power"]) == (
            2.25,
            "nominal",
            False,
        )
    assert energies(store, job_id) == [1.5] * 4
    with reading(store.engine) as connection:
        assert connection.scalar(text("SELECT energy_j FROM v_cells")) == 6.0


def test_without_a_counter_all_of_it_stays_empty(store: Store, models: Models) -> None:
    """Nothing is invented: null in the result and in the views."""
    job_id = run(store, None, models)
    names = ("energy_j", "joules_per_token", "idle_w")
    assert {result.metrics[name] for result in store.results(job_id) for name in names} == {None}
    assert energies(store, job_id) == [None] * 4


def test_of_a_batch_each_row_gets_its_share(store: Store, models: Models) -> None:
    """Three rows at once are given together no more than what the machine took for all of them."""
    models._model(target_ref(CellSpec.model_validate({"target": TARGET, "dtype": "float32"})))
    watt = Watt()
    began_j = watt.joules()
    job_id = run(store, Meter(watt, Conditions), models, batch=3)
    took_j = watt.joules() - began_j
    found = [result.metrics["energy_j"] for result in store.results(job_id)]
    assert min(found) > 0.0
    assert sum(found) < took_j


def test_idle_power_is_the_least_of_a_few_seconds() -> None:
    """Only of waiting without a gap: what came in between begins it anew, and a shorter wait says nothing."""
    meter = Meter(Said(0, 5, 10, 15, 20, 24, 28, 32, 40, 50, 60), Conditions)
    for now_s in (0, 1, 2):
        meter.rest(now_s)
    assert meter.idle_w is None
    meter.rest(3)
    assert meter.idle_w == 5.0
    for now_s in (60, 61, 62, 63):
        meter.rest(now_s)
    assert meter.idle_w == 4.0
    for now_s in (64, 65, 66):
        meter.rest(now_s)
    assert meter.idle_w == 4.0


def test_a_worker_that_waits_measures_it(
    store: Store, models: Models, broker: redis.Redis, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the thread that holds the models, while nothing is to be done, so that no job waits for it."""
    monkeypatch.setattr(energy, "IDLE_S", 0.5)

    class Draining(Watt):
        def joules(self) -> float:
            if shift.meter.idle_w is not None:
                shift.drain()
            return super().joules()

    shift = Shift(store, models, Wakeups(broker), "here/1", meter=Meter(Draining(), Conditions))
    ResidentWorker(settings.redis_url, shift).serve()
    assert shift.meter.idle_w is not None
    assert shift.meter.idle_w > 0.0


def test_rapl_s_counters_are_added_and_go_round(tmp_path: Path) -> None:
    """Processors and memory together, in joules; one that began anew has not fallen."""
    zones = [Zone(tmp_path / name, 10_000_000) for name in ("package", "dram")]
    for zone, used_uj in zip(zones, (9_000_000, 5), strict=True):
        zone.path.write_text(f"{used_uj}\n")
    counter = Rapl(zones)
    assert counter.joules() == 0.0
    zones[0].path.write_text("500000\n")
    zones[1].path.write_text("1000005\n")
    assert counter.joules() == 2.5
    assert counter.joules() == 2.5


def test_an_apple_chip_s_parts_are_added() -> None:
    """What it does not tell of counts as nothing; one that tells of no part is no counter."""
    used = dict.fromkeys(APPLE_PARTS, None) | {"cpu_total_mj": 1500, "gpu_mj": 2500, "efficiency_cores_mj": [9]}
    soc = SimpleNamespace(get_total_energy_consumption=lambda: SimpleNamespace(**used))
    assert Apple(soc).joules() == 4.0
    used |= {"cpu_total_mj": None, "gpu_mj": None}
    with pytest.raises(NoCounter, match="none of its parts"):
        Apple(soc)


def test_a_machine_without_the_extra_or_without_a_counter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker logs one line and goes on."""
    monkeypatch.setitem(sys.modules, "zeus", None)
    with pytest.raises(NoCounter, match=r"pip install 'nocka\[energy\]'"):
        open_counter()

    class Unable(Exception):
        pass

    def unable() -> None:
        raise Unable("RAPL is not supported on this CPU.")

    names = ("zeus", "zeus.device", "zeus.device.cpu", "zeus.device.cpu.rapl", "zeus.device.soc", "zeus.exception")
    played = {name: ModuleType(name) for name in names}
    for name, module in played.items():
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(played[name.rpartition(".")[0]], name.rpartition(".")[2], module)
    played["zeus.exception"].ZeusBaseError = Unable  # type: ignore[attr-defined]
    played["zeus.device.cpu.rapl"].RAPLCPUs = played["zeus.device.soc"].get_soc = unable  # type: ignore[attr-defined]
    with pytest.raises(NoCounter, match="RAPL is not supported"):
        open_counter()


@pytest.mark.parametrize(
    ("said", "pressure"),
    [
        ("com.apple.system.thermalpressurelevel 0\n", "nominal"),
        ("com.apple.system.thermalpressurelevel 2\n", "heavy"),
        ("com.apple.system.thermalpressurelevel 9\n", None),
        ("com.apple.system.thermalpressurelevel: Failed with code 9\n", None),
        ("", None),
    ],
)
def test_thermal_pressure_is_read_from_what_notifyutil_prints(said: str, pressure: str | None) -> None:
    """Its number by name; anything else is not known."""
    assert thermal_pressure(said) == pressure


def test_low_power_mode_is_read_from_what_pmset_prints() -> None:
    """On, off, or not told, as on a Mac that has none."""
    assert low_power_mode(PMSET.format(1)) is True
    assert low_power_mode(PMSET.format(0)) is False
    assert low_power_mode("System-wide power settings:\nCurrently in use:\n sleep 1\n") is None
    assert low_power_mode("") is None


def test_energy_is_no_part_of_what_was_generated(models: Models) -> None:
    """Measuring replaces figures and nothing else."""
    cell = CellSpec.model_validate({"target": TARGET, "dtype": "float32"})
    decoder = Decoder(models._model(target_ref(cell)), None, 0, {})
    generation = decoder.generate(ask("Litwo", GREEDY, 4))
    measured = Meter(Said(1, 3), Conditions).open().measured(generation, 0.5)
    assert measured.metrics.energy_j == 1.0
    assert dataclasses.replace(measured.metrics, energy_j=None) == generation.metrics
    assert (measured.text, measured.tokens) == (generation.text, generation.tokens)
