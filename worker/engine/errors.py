"""The engine's errors.

EngineError
├── ModelNotLoadable     the model's files cannot be loaded here: the job fails
├── ModelTooLarge        its weights take more memory than models may take here: the job fails
├── DraftMismatch        this draft cannot serve this target: the job fails
├── NotTogether          this model's caches cannot be batched: its items run one by one
├── TextTooLarge         the cache of this text takes more memory than is left: the item fails
├── PromptTooLong        prompt and answer exceed the model's context: the item fails
└── PromptNotUsable      the chat template refuses these turns, or nothing is left to read: the item fails
"""

from __future__ import annotations


class EngineError(Exception):
    """*code* is stable and machine-readable; the message says what is wrong and how to mend it."""

    code = "engine_error"


class ModelNotLoadable(EngineError):
    """The model's files cannot be loaded here."""

    code = "model_not_loadable"


class ModelTooLarge(EngineError):
    """The weights take more memory than models may take here."""

    code = "model_too_large"


class DraftMismatch(EngineError):
    """This draft cannot serve this target."""

    code = "draft_mismatch"


class NotTogether(EngineError):
    """This model's caches cannot be batched."""

    code = "not_together"


class TextTooLarge(EngineError):
    """The cache of this text takes more memory than the weights leave."""

    code = "text_too_large"


class PromptTooLong(EngineError):
    """Prompt and answer exceed the model's context."""

    code = "prompt_too_long"


class PromptNotUsable(EngineError):
    """The chat template refuses these turns, or nothing is left to read."""

    code = "prompt_not_usable"
