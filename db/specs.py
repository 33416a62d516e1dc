"""What a client may ask for: frozen pydantic models in which an unknown key is an error."""

from __future__ import annotations

import enum
import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from db.schedule import Schedule

MAX_K = 16
MAX_BATCH = 64


_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


def _storable(text: str) -> str:
    """*text* unchanged. SQLite takes no lone surrogates (JSON may hold them), Postgres no NUL: neither is text."""
    if _NOT_TEXT.search(text):
        raise ValueError("holds a NUL or half a surrogate pair, which is not text")
    return text


StoredText = Annotated[str, AfterValidator(_storable)]
CustomId = Annotated[StoredText, StringConstraints(min_length=1, max_length=512)]


class Spec(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class JobKind(enum.StrEnum):
    """What a job is for."""

    #: One cell; the answers matter.
    GENERATION = "generation"
    #: A grid of cells; the figures matter.
    EVALUATION = "evaluation"
    #: No answers: one n-gram model is built from texts.
    NGRAM = "ngram"
    #: No answers: what a pair of models costs on the worker's machine.
    CALIBRATION = "calibration"


class DrafterKind(enum.StrEnum):
    """Who proposes tokens."""

    #: Nobody: plain decoding.
    OFF = "off"
    #: A smaller model with the target's tokenizer.
    NEURAL = "neural"
    #: A smaller model with another tokenizer, its proposals translated (UAG).
    CROSS = "cross"
    #: A smaller model with another tokenizer that says only what both spell as one token (TLI).
    INTERSECT = "intersect"
    #: An n-gram model over the target's tokens, from a file.
    NGRAM = "ngram"
    #: The prompt's own and the answer's earlier words.
    LOOKUP = "lookup"
    #: This request's words and the earlier answers of the same cell.
    SUFFIX = "suffix"
    #: `suffix`, then n-grams, then a draft model, by what each promises.
    STAGED = "staged"
    #: Each round whoever pays on the worker's machine, or nobody.
    AUTO = "auto"


class Translation(enum.StrEnum):
    """How tokens of the draft's vocabulary become tokens of the target's."""

    #: Each draft token whose bytes are exactly one target token; stop at the first that is not.
    DIRECT = "direct"
    #: Draft decode, then target encode.
    NAIVE = "naive"
    #: Re-encode behind committed target tokens, aligned by byte offset.
    CONTEXT = "context"


class Dtype(enum.StrEnum):
    """Which type the weights are held in."""

    #: float32 for unquantised weights on the CPU, as stored on Metal.
    AUTO = "auto"
    STORED = "stored"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


NEEDS_DRAFT = frozenset({DrafterKind.NEURAL, DrafterKind.CROSS, DrafterKind.INTERSECT})
TAKES_DRAFT = NEEDS_DRAFT | {DrafterKind.STAGED, DrafterKind.AUTO}
TAKES_NGRAM = frozenset({DrafterKind.NGRAM, DrafterKind.STAGED, DrafterKind.AUTO})
#: Drafters that are not told how much to propose.
WITHOUT_K = frozenset({DrafterKind.OFF, DrafterKind.AUTO})
#: Drafters under which results may run together.
BATCHES = frozenset({DrafterKind.OFF})


class Overrides(Spec):
    """Decoding options that one item sets for itself; None leaves the cell's."""

    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000)
    temperature: float | None = Field(default=None, ge=0.0, le=5.0)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0.0, le=1.0)
    repetition_penalty: float | None = Field(default=None, gt=0.0, le=10.0)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: tuple[Annotated[str, StringConstraints(min_length=1)], ...] | None = None


class Decoding(Spec):
    """How the target draws its tokens. Temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off."""

    max_tokens: int = Field(default=256, ge=1, le=1_000_000)
    temperature: float = Field(default=0.0, ge=0.0, le=5.0)
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    top_k: int = Field(default=0, ge=0)
    min_p: float = Field(default=0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(default=1.0, gt=0.0, le=10.0)
    seed: int = Field(default=0, ge=0, lt=2**63)
    stop: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = ()

    def overridden(self, overrides: Overrides) -> Decoding:
        """This decoding with every option that *overrides* sets."""
        return self.model_copy(update=overrides.model_dump(exclude_none=True))


class CellSpec(Spec):
    """One decoding configuration of a job."""

    #: Catalogue name, absolute local folder, or Hugging Face repo id.
    target: str = Field(min_length=1)
    target_revision: str | None = None
    draft: str | None = None
    draft_revision: str | None = None
    drafter: DrafterKind = DrafterKind.OFF
    translation: Translation | None = None
    #: Absolute path of an n-gram file.
    ngram: str | None = None
    #: Tokens a draft may propose in a round, in its own tokens.
    k: int = 0
    dtype: Dtype = Dtype.AUTO
    #: Results that run at once; 0: as many as pay on the worker's machine.
    batch: int = Field(default=1, ge=0, le=MAX_BATCH)
    #: Which of target and draft may run code of their own that their files bring along.
    trust_remote_code: tuple[str, ...] = ()
    decoding: Decoding = Decoding()

    @model_validator(mode="after")
    def _combination(self) -> Self:
        name = self.drafter.value
        strangers = sorted(set(self.trust_remote_code) - {self.target, self.draft})
        if strangers:
            raise ValueError(f"trust_remote_code names {', '.join(strangers)}, neither the target nor the draft")
        if self.drafter in NEEDS_DRAFT and self.draft is None:
            raise ValueError(f"drafter {name} needs a draft model (--draft NAME)")
        if self.drafter not in TAKES_DRAFT and self.draft is not None:
            raise ValueError(f"drafter {name} takes no draft model; leave --draft out")
        if self.drafter is DrafterKind.NGRAM and self.ngram is None:
            raise ValueError("drafter ngram needs an n-gram file (--ngram FILE; `nocka ngram build` makes one)")
        if self.drafter not in TAKES_NGRAM and self.ngram is not None:
            raise ValueError(f"drafter {name} takes no n-gram file; leave --ngram out")
        if (self.translation is not None) != (self.drafter is DrafterKind.CROSS):
            raise ValueError(f"translation belongs to drafter cross: it is needed there and means nothing under {name}")
        fits = self.k == 0 if self.drafter in WITHOUT_K else 1 <= self.k <= MAX_K
        if self.batch != 1 and self.drafter not in BATCHES:
            raise ValueError(f"results that run together (--batch) are decoded without a drafter, not under {name}")
        if not fits:
            raise ValueError(f"k is 1 to {MAX_K} with a drafter and 0 under off and auto, not {self.k} under {name}")
        return self

    @property
    def label(self) -> str:
        """A short name for tables: `plain`, `cross context k=2 mini-draft-bytes`."""
        together = "" if self.batch == 1 else f"batch={self.batch or 'auto'}"
        if self.drafter is DrafterKind.OFF:
            return f"plain {together}".rstrip()
        words = [
            self.drafter.value,
            self.translation.value if self.translation else "",
            f"k={self.k}" if self.k else "",
        ]
        words += [(source or "").rstrip("/").rsplit("/", 1)[-1] for source in (self.draft, self.ngram)]
        return " ".join(word for word in words if word)


class Message(Spec):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: StoredText


class ItemSpec(Spec):
    """One input of a job: either a conversation or a raw text to continue."""

    custom_id: CustomId
    messages: tuple[Message, ...] | None = None
    #: Raw text, continued without a chat template.
    text: StoredText | None = None
    #: The right answer, where there is one.
    reference: StoredText | None = None
    #: Of an evaluation: the data set and the kind of text (`structured`, `instruction`, `question`, ...).
    dataset: StoredText | None = None
    content_kind: StoredText | None = None
    overrides: Overrides = Overrides()

    @model_validator(mode="after")
    def _one_input(self) -> Self:
        if (self.messages is None) == (self.text is None):
            raise ValueError("an item has either messages or a text")
        if self.messages is not None and not any(message.content.strip() for message in self.messages):
            raise ValueError("the prompt is empty")
        if self.text is not None and not self.text.strip():
            raise ValueError("the prompt is empty")
        return self


class RejectedItem(Spec):
    """An invalid input that `--skip-invalid` records as a failed item instead of refusing the whole job."""

    custom_id: CustomId
    code: StoredText
    message: StoredText


class NgramTask(Spec):
    """An n-gram model to be built by a worker that sees the same files."""

    #: Absolute paths of UTF-8 text, JSONL or CSV files.
    corpora: tuple[StoredText, ...] = Field(min_length=1)
    #: Absolute path; it appears when all is done.
    output: StoredText = Field(min_length=1)
    order: int = Field(default=3, ge=2, le=5)
    #: Field of JSONL lines or column of CSV files that holds the text.
    column: StoredText = Field(default="text", min_length=1)


class CalibrationTask(Spec):
    """A pair of models to be measured; the job's cell names it."""

    #: Measure anew where an equal machine's figures are there already.
    force: bool = False


#: Scorers by name (`worker.evals`), and what comes before the pattern of the one that takes one.
SCORERS = ("chrf", "bleu", "exact", "contains", "json_valid", "length", "polish_share")
REGEX = "regex:"


def _scorer(name: str) -> str:
    """*name* of a scorer, or `regex:` and a pattern."""
    if name.startswith(REGEX):
        try:
            re.compile(name.removeprefix(REGEX))
        except re.error as error:
            raise ValueError(f"{name}: not a pattern: {error}") from error
    elif name not in SCORERS:
        raise ValueError(f"no scorer {name!r}; there are {', '.join(SCORERS)} and {REGEX}PATTERN")
    return name


class EvaluationTask(Spec):
    """What an evaluation does with its answers beside storing them."""

    #: Scorers by name, or `regex:PATTERN`, each applied to every answer.
    scorers: tuple[Annotated[StoredText, AfterValidator(_scorer)], ...] = ()


Task = NgramTask | CalibrationTask | EvaluationTask
#: What kind of task a kind of job has; a generation has none, and an evaluation may do without.
TASKS: dict[JobKind, type[Task]] = {
    JobKind.NGRAM: NgramTask,
    JobKind.CALIBRATION: CalibrationTask,
    JobKind.EVALUATION: EvaluationTask,
}


class JobSpec(Spec):
    """What a client submits."""

    kind: JobKind
    name: StoredText = Field(min_length=1, max_length=200)
    cells: tuple[CellSpec, ...] = Field(min_length=1)
    items: tuple[ItemSpec, ...]
    rejected: tuple[RejectedItem, ...] = ()
    #: What the job does that is not an answer, by its kind (`TASKS`); the one item of an n-gram or calibration job
    #: stands for it.
    task: Task | None = None
    #: Higher goes first.
    priority: int = Field(default=0, ge=-100, le=100)
    schedule: Schedule = Schedule()
    #: A shell command, run by the worker once the job has ended, with the job's summary as JSON on its stdin.
    on_done: StoredText | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kind is JobKind.GENERATION and len(self.cells) != 1:
            raise ValueError("a generation job has exactly one cell")
        wanted = TASKS.get(self.kind)
        if self.task is not None and (wanted is None or not isinstance(self.task, wanted)):
            raise ValueError(f"a {self.kind.value} job takes no {type(self.task).__name__}")
        stands_for_task = self.kind in {JobKind.NGRAM, JobKind.CALIBRATION}
        if stands_for_task and self.task is None:
            raise ValueError(f"a {self.kind.value} job needs its task")
        if stands_for_task and (len(self.cells), len(self.items), len(self.rejected)) != (1, 1, 0):
            raise ValueError(f"a {self.kind.value} job has one cell and one item")
        if not self.items and not self.rejected:
            raise ValueError("a job needs at least one item")
        seen: set[str] = set()
        for custom_id in [item.custom_id for item in self.items] + [item.custom_id for item in self.rejected]:
            if custom_id in seen:
                raise ValueError(f"custom_id {custom_id!r} occurs twice")
            seen.add(custom_id)
        return self
