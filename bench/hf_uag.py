"""Hugging Face's universal assisted generation over the same weights: float32, on the CPU.

The models are loaded from the same files. A replay is a logits processor that raises the text's next token, as
`bench/replay.py` does; it leaves the assistant alone, whose logits have another width.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from bench.replay import ABOVE_ALL


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assisted:
    """What one generation gave: the new target ids, an end of turn counted, and how many target forwards they took."""

    tokens: tuple[int, ...]
    forwards: int


class Saying:
    """Raises the next token of *ids* above all others, for logits (1, *width*)."""

    def __init__(self, ids: Sequence[int], width: int) -> None:
        self._ids = list(ids)
        self._width = width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        length = input_ids.shape[1]
        if scores.shape[-1] != self._width or length >= len(self._ids):
            return scores
        scores = scores.clone()
        scores[:, self._ids[length]] = ABOVE_ALL
        return scores


class HuggingFace:
    """A target and a draft of another tokenizer, in folders."""

    def __init__(self, target: Path, draft: Path) -> None:
        logging.set_verbosity_error()
        torch.set_grad_enabled(False)
        self._target, self._tokenizer = _load(target)
        self._draft, self._draft_tokenizer = _load(draft)
        self._forwards = 0
        self._target.register_forward_pre_hook(self._count)

    def plain(self, prompt: Sequence[int], max_tokens: int) -> Assisted:
        """Continue *prompt* greedily without an assistant."""
        return self._generate(prompt, max_tokens, [])

    def assisted(self, prompt: Sequence[int], max_tokens: int, k: int, saying: Sequence[int] | None = None) -> Assisted:
        """Continue *prompt* greedily, or say the ids *saying*, drafting *k* tokens a round, whatever happens."""
        config = self._draft.generation_config
        config.num_assistant_tokens = k
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        processors = [] if saying is None else [Saying(saying, self._target.config.vocab_size)]
        return self._generate(
            prompt,
            max_tokens,
            processors,
            assistant_model=self._draft,
            tokenizer=self._tokenizer,
            assistant_tokenizer=self._draft_tokenizer,
        )

    def _generate(self, prompt: Sequence[int], max_tokens: int, processors: list[Any], **options: Any) -> Assisted:
        self._forwards = 0
        ids = torch.tensor([list(prompt)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = self._target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=max_tokens,
                logits_processor=processors,
                **options,
            )
        return Assisted(tokens=tuple(found[0, len(prompt) :].tolist()), forwards=self._forwards)

    def _count(self, *_: Any) -> None:
        self._forwards += 1


def _load(folder: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if model.generation_config.pad_token_id is None:
        model.generation_config.pad_token_id = model.config.eos_token_id
    return model, tokenizer
