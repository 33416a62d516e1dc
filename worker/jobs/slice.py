"""
What one wake-up does: results are claimed from the store, most urgent first, until a bound of time or number is met.

RQ calls `advance` by name and can hand it nothing but a string, so this module holds the process's one `Shift`;
`worker/__main__.py` begins it before RQ runs, and nothing else ever sets it.
"""

from __future__ import annotations

import datetime as dt
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import redis
import structlog

from db.errors import ModelUnavailable, NockaError
from db.records import Claim, Finished
from db.specs import CalibrationTask, JobKind, NgramTask
from db.store import Store
from worker.caffeine import Caffeine
from worker.engine.cost import Costs
from worker.engine.energy import Meter
from worker.engine.errors import EngineError, ModelNotLoadable, NotTogether, TextTooLarge
from worker.engine.values import Generation, ModelRef
from worker.jobs import batch as together
from worker.jobs import calibration, ngram
from worker.jobs.corpus import CorpusError
from worker.jobs.evaluation import evaluated
from worker.jobs.generation import drafting, finished, request
from worker.jobs.needs import LoadsModels
from worker.models_path import target_ref
from worker.on_done import tell_ended
from worker.wakeups import Wakeups

SLICE_S = 60.0
SLICE_RESULTS = 1_000
#: How often a running item asks the store whether it is still wanted.
ASK_EVERY_S = 1.0

Loaded = TypeVar("Loaded")

log = structlog.get_logger("worker")


def never(begun: int) -> bool:
    """A worker that is not worn out by what it did."""
    return False


class Shift:
    """The store, the models, and whether to stop: everything a wake-up needs. One per process, on the main thread."""

    def __init__(
        self,
        store: Store,
        models: LoadsModels,
        wakeups: Wakeups,
        worker: str,
        worn_out: Callable[[int], bool] = never,
        runs_on_done: bool = False,
        meter: Meter | None = None,
    ) -> None:
        """*worn_out* hears how many items were begun and says whether the process should end and start anew.

        *meter* tells what a generation took.
        """
        self.meter = meter or Meter(None)
        self.store = store
        self.worker = worker
        self._models = models
        self._wakeups = wakeups
        self._worn_out = worn_out
        self._runs_on_done = runs_on_done
        self._begun = 0
        #: Models loaded for a job since a result of it was last committed.
        self._loads: Counter[str] = Counter()
        self._draining = False
        #: Of the slice that runs: how many were claimed, when it is over, and what was claimed with the last commit.
        self._claimed, self._ends_at = 0, 0.0
        self._following: Claim | None = None
        #: The result that is being worked on, and when it last got on. Read by the heartbeat's thread.
        self.running: int | None = None
        self.progress_at: dt.datetime | None = None

    def got_on(self, result_id: int | None) -> None:
        """Note that *result_id* is being worked on and gets on."""
        self.running, self.progress_at = result_id, None if result_id is None else dt.datetime.now(dt.UTC)

    @property
    def draining(self) -> bool:
        """Whether this process was asked to end: the running item is handed back and none is begun."""
        return self._draining

    def drain(self) -> None:
        """Ask this process to end. Safe in a signal handler."""
        # A plain attribute: an Event's lock could be held by the very code that the signal interrupts.
        self._draining = True

    def rest(self) -> None:
        """Note that nothing was done but to wait."""
        self.meter.rest(time.monotonic())

    def tell(self) -> None:
        """Run the commands of jobs that have ended, where this machine runs such."""
        if self._runs_on_done:
            tell_ended(self.store)

    def advance(self) -> int:
        """Run results, most urgent first, for at most a slice; how many were claimed."""
        claimed = self._advance()
        if claimed:
            self.tell()
        return claimed

    def _advance(self) -> int:
        self._claimed, self._ends_at = 0, time.monotonic() + SLICE_S
        while self._following is not None or self._goes_on():
            claim, self._following = self._following or self.store.claim(self.worker), None
            if claim is None:
                return self._claimed
            self._claimed += 1
            if self._claimed == 1:
                # Now rather than after the slice: an idle worker on another machine joins in.
                self._wake_for_the_rest()
            self.got_on(claim.result_id)
            with Caffeine():
                self._claimed += self._run(claim)
            self.got_on(None)
            if self._worn_out(self._begun):
                log.info("the worker starts itself anew", items=self._begun)
                self.drain()
        self._wake_for_the_rest()
        return self._claimed

    def _goes_on(self) -> bool:
        """Whether the slice has room for another result."""
        return not self._draining and self._claimed < SLICE_RESULTS and time.monotonic() < self._ends_at

    def _wake_for_the_rest(self) -> None:
        """Queue the next wake-up when more is due. The broker may be away: the store is looked at anyway."""
        job_id = self.store.next_job()
        if job_id is not None:
            try:
                self._wakeups.ensure(job_id)
            except redis.RedisError as error:
                log.warning("no wake-up was queued, the broker is away", reason=type(error).__name__)

    def _run(self, claim: Claim) -> int:
        """One attempt at one result, from its models to its commit, or at a batch of them; how many joined it."""
        begun = self._begun = self._begun + 1
        if isinstance(claim.task, NgramTask):
            self._build(claim, claim.task, _where(claim))
        elif isinstance(claim.task, CalibrationTask):
            self._calibrate(claim, claim.task, _where(claim))
        elif claim.cell.batch != 1:
            self._run_together(claim)
        else:
            self.alone(claim)
        return self._begun - begun

    def _run_together(self, claim: Claim) -> None:
        """Run *claim* and others of its cell at once, where its model can do that."""
        sized = together.rows_of(claim.cell, self.store, self.worker.partition("/")[0])
        try:
            batch = self._loaded(
                claim,
                lambda: self._models.batch(target_ref(claim.cell), sized, f"cell {claim.cell_id}", request(claim)),
            )
        except NotTogether as error:
            self.alone(claim, str(error))
        else:
            if batch is not None:
                together.run(claim, batch, self)

    def another(self, like: Claim) -> Claim | None:
        """One more result of the same cell, to run beside it; None where none should be begun."""
        if self._draining or self._worn_out(self._begun):
            return None
        claim = self.store.claim(self.worker, like)
        self._begun += claim is not None
        return claim

    def interrupt(self, claim: Claim) -> _Interrupt:
        """Tells whether this result should stop."""
        return _Interrupt(self, claim)

    def alone(self, claim: Claim, why: str | None = None) -> None:
        """Run one result by itself; *why*, where its cell asks for several at once."""
        cell, memory = claim.cell, f"cell {claim.cell_id}"
        try:
            decoder = self._loaded(
                claim,
                lambda: self._models.decoder(
                    target_ref(cell), drafting(cell), memory, lambda draft: self._costs(claim, draft), request(claim)
                ),
            )
        except Unwanted:
            self.give_back(claim)
            return
        if decoder is None:
            return
        window, began_at = self.meter.open(), time.monotonic()
        if decoder.blank:
            decoder.recall(self.store.answers(claim.cell_id))
        try:
            generation = decoder.generate(request(claim), interrupted=_Interrupt(self, claim))
        except NockaError:  # the store's own trouble, not the item's
            raise
        except Exception as error:  # one item never harms the others
            self.fail(claim, error)
        else:
            config = decoder.config if why is None else {**decoder.config, "batch": {"rows": 1, "why": why}}
            self.commit(claim, window.measured(generation), config, time.monotonic() - began_at)

    def _costs(self, claim: Claim, draft: ModelRef | None) -> Costs | None:
        """What the target of *claim*'s cell and *draft*, if it has room, cost here, measured now where nobody did.

        Raises Unwanted.
        """
        progress = _Progress(self.store, claim, _Interrupt(self, claim))
        cell = claim.cell if draft is not None else claim.cell.model_copy(update={"draft": None})
        return calibration.costs_of(self.store, self._models, cell, self.worker.partition("/")[0], progress)

    def _loaded(self, claim: Claim, load: Callable[[], Loaded]) -> Loaded | None:
        """What *load* loads; None where it cannot, and the result or the whole job has failed."""
        before = self._models.loads
        try:
            return load()
        except (NotTogether, Unwanted):  # no reason to fail: its results run one by one, or nobody wants them now
            raise
        except TextTooLarge as error:  # another text of the job may fit
            self.fail(claim, error)
        except (EngineError, ModelUnavailable) as error:
            self._fail_job(claim, error.code, str(error))
        except NockaError:  # the store's own trouble
            raise
        except Exception as error:  # whatever a model's files make their loader raise
            log.error("a model could not be loaded", **_where(claim), kind=type(error).__name__, at=_frames(error))
            self._fail_job(claim, ModelNotLoadable.code, _in_short(error))
        finally:
            self._loads[claim.job_id] += self._models.loads - before
        return None

    def fail(self, claim: Claim, error: Exception) -> None:
        """Commit *error* as the result's."""
        if isinstance(error, EngineError):
            log.info("item failed", **_where(claim), code=error.code)
            self.store.fail(claim, error.code, str(error))
        else:
            code, kind = "generation_failed", type(error).__name__
            log.error("item failed", **_where(claim), code=code, kind=kind, at=_frames(error))
            self.store.fail(claim, code, _in_short(error))

    def give_back(self, claim: Claim) -> None:
        """Set the result waiting again, where it was not cancelled."""
        given_back = self.store.give_back(claim)
        log.info("item given back" if given_back else "item dropped, it was cancelled", **_where(claim))

    def commit(self, claim: Claim, generation: Generation, config: dict[str, Any], took_s: float) -> None:
        """Commit the answer, unless it was interrupted."""
        where = _where(claim)
        if generation.finish_reason == "interrupted":
            self.give_back(claim)
            return
        made = finished(claim, generation, config, self._loads.pop(claim.job_id, 0))
        if claim.job_kind is JobKind.EVALUATION:
            made = evaluated(claim, made, generation.tokens, self.store.plain_answer(claim), self._models)
        if self._finish(claim, made):
            metrics = generation.metrics
            chosen = {} if metrics.choices is None else {"chosen": str(metrics.choices)}
            log.info("item done", **where, tokens=metrics.completion_tokens, seconds=round(took_s, 2), **chosen)
        else:
            log.info("item dropped, it was cancelled or taken over", **where)

    def _finish(self, claim: Claim, made: Finished) -> bool:
        """Commit the answer; whether it was. The job's next result is claimed with it, for the price of one sync."""
        if claim.cell.batch != 1 or not self._goes_on() or self._worn_out(self._begun):
            return self.store.finish(claim, made)
        turnover = self.store.finish_and_claim(claim, made, self.worker)
        self._following = turnover.following
        return turnover.committed

    def _build(self, claim: Claim, task: NgramTask, where: dict[str, Any]) -> None:
        """Build the file that *task* asks for."""
        progress = _Progress(self.store, claim, _Interrupt(self, claim))
        try:
            built = ngram.build(claim, task, self._models.tokenizer(target_ref(claim.cell)), progress)
        except Unwanted:
            self.store.give_back(claim)
            log.info("build given back or cancelled", **where)
        except (CorpusError, OSError, ValueError, EngineError, ModelUnavailable) as error:
            code = error.code if isinstance(error, EngineError | ModelUnavailable) else "ngram_not_built"
            log.info("build failed", **where, code=code)
            self.store.fail(claim, code, str(error))
        else:
            self.store.finish(claim, built)
            log.info("build done", **where, seconds=round(built.metrics["seconds"], 2))

    def _calibrate(self, claim: Claim, task: CalibrationTask, where: dict[str, Any]) -> None:
        """Measure a pair of models here, unless that was done."""
        progress = _Progress(self.store, claim, _Interrupt(self, claim))
        machine = self.worker.partition("/")[0]
        try:
            made = calibration.calibrated(self.store, self._models, claim.cell, machine, progress, force=task.force)
        except Unwanted:
            self.store.give_back(claim)
        except (EngineError, ModelUnavailable) as error:
            log.info("calibration failed", **where, code=error.code)
            self.store.fail(claim, error.code, str(error))
        except NockaError:  # the store's own trouble
            raise
        except Exception as error:  # whatever a model makes MLX raise
            log.error("calibration failed", **where, kind=type(error).__name__, at=_frames(error))
            self.store.fail(claim, "not_calibrated", _in_short(error))
        else:
            config = {"target": claim.cell.target, "draft": claim.cell.draft, "key": made.key}
            advice = made.figures["advice"]
            self.store.finish(claim, Finished(text=advice, finish_reason="stop", metrics=made.figures, config=config))
            log.info("calibration done", **where, seconds=round(made.figures["seconds"], 2), measured=made.measured)

    def _fail_job(self, claim: Claim, code: str, message: str) -> None:
        log.error("job failed", job=claim.job_id, code=code, reason=message)
        self.store.fail_job(claim.job_id, code, message)


class _Interrupt:
    """Whether the running item should stop: the process drains, or the store says that nobody wants it any more."""

    def __init__(self, shift: Shift, claim: Claim) -> None:
        self._shift = shift
        self._claim = claim
        self._lost = False
        self._ask_at = time.monotonic() + ASK_EVERY_S

    def __call__(self) -> bool:
        self._shift.got_on(self._claim.result_id)
        if not self._lost and time.monotonic() >= self._ask_at:
            self._lost = not self._shift.store.holds(self._claim)
            self._ask_at = time.monotonic() + ASK_EVERY_S
        return self._lost or self._shift.draining


class Unwanted(Exception):
    """Nobody wants the rest of what is being built."""


class _Progress:
    """Notes how far a build is with its result, as often as it asks whether it is still wanted; stops it if not."""

    def __init__(self, store: Store, claim: Claim, interrupted: Callable[[], bool]) -> None:
        self._store = store
        self._claim = claim
        self._interrupted = interrupted
        self._note_at = time.monotonic()

    def __call__(self, done: float) -> None:
        if self._interrupted():
            raise Unwanted
        if time.monotonic() >= self._note_at:
            self._store.note(self._claim, {"progress": round(done, 4)})
            self._note_at = time.monotonic() + ASK_EVERY_S


def _where(claim: Claim) -> dict[str, Any]:
    """What a log line says of a result."""
    return {"job": claim.job_id, "result": claim.result_id, "attempt": claim.attempt}


def _in_short(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


def _frames(error: BaseException) -> str:
    """The traceback without the error's own text, which may quote the document."""
    frames = traceback.extract_tb(error.__traceback__)
    return " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


_shift: Shift | None = None


def begin(shift: Shift) -> None:
    """Make *shift* the one that `advance` works for."""
    global _shift
    _shift = shift


def advance(job_id: str) -> None:
    """The one function that RQ calls. *job_id* is a hint: the store decides what is most urgent."""
    if _shift is None:
        raise RuntimeError("advance runs inside a worker only; start one with `nocka up`")
    log.info("woken", job=job_id)
    _shift.advance()
