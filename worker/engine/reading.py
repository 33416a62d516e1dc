"""A draft model that reads along: the conversation in its own chat template, then the text of the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.engine.context import Context
from worker.engine.errors import PromptNotUsable
from worker.engine.model import Model
from worker.engine.retokenize import Retokenized
from worker.engine.tokenizer import Tokenizer
from worker.engine.values import Request


class Reading:
    """What *draft* reads of one request. Per round only the changed tail of the text is encoded and read again."""

    def __init__(self, draft: Model, request: Request) -> None:
        self.context = Context(draft)
        self._text = Retokenized(draft.tokenizer, prompt_of(draft.tokenizer, request))
        # How many ids of the text are surely the first ones in the context.
        self._in_step = len(self._text.ids)

    @property
    def ids(self) -> Sequence[int]:
        """The prompt and the text so far, in the draft's tokens, without `pending`. Not to be changed."""
        return self._text.ids

    @property
    def pending(self) -> bytes:
        """The text's last bytes where they do not make a whole character yet."""
        return self._text.pending

    def prefill(self, interrupted: Callable[[], bool]) -> bool:
        """Read the prompt but for its last id; whether nothing interrupted."""
        return self.context.prefill(self._text.ids[:-1], interrupted)

    def hear(self, data: bytes) -> None:
        """Let the text grow by *data*. Nothing is read yet."""
        self._in_step = min(self._in_step, self._text.extend(data))

    def unread(self, room: int, behind: Sequence[int] = (), again: int = 1) -> list[int]:
        """Let the context follow the text and *behind* it; returns the ids it has to read for that, at least *again*.

        *room* more tokens will fit.
        """
        ids = self._text.ids
        known = min(self._in_step, len(self.context))
        unread = self.context.follow([*ids, *behind] if behind else ids, known, room, again)
        self._in_step = len(ids)
        return unread

    def leave(self, length: int) -> None:
        """Rewind to the text's first *length* ids, to go on with others than the text's."""
        self.context.rewind(length)
        self._in_step = min(self._in_step, length)


def prompt_of(tokenizer: Tokenizer, request: Request) -> list[int]:
    """A model's own prompt, never empty. One whose template refuses the turns reads their bare text."""
    if request.text is not None:
        return tokenizer.raw(request.text) or [tokenizer.end_of_turn]
    turns = request.turns or ()
    try:
        return tokenizer.conversation(turns)
    except PromptNotUsable:
        return tokenizer.raw("\n\n".join(turn.content for turn in turns) + "\n\n")
