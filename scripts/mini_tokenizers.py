"""The three ways in which the mini family cuts Polish, trained from the same text.

* `target`: SentencePiece-style BPE with a prefix marker, byte fallback and a small vocabulary, as Mistral and Bielik 11B
  have; Polish falls into about 2.9 pieces a word.
* `bytes`: byte-level BPE behind a regular expression, as Qwen and Llama have.
* `polish`: SentencePiece-style BPE with a larger, Polish-only vocabulary that adds BOS by itself, as APT4 does; it has no
  piece for typographic quotes, dashes and NBSP.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

BYTE_PIECES = [f"<0x{value:02X}>" for value in range(256)]
TURN_TOKENS = ["<|im_start|>", "<|im_end|>"]
POLISH_LETTERS = "aąbcćdeęfghijklłmnńoópqrsśtuvwxyzźżAĄBCĆDEĘFGHIJKLŁMNŃOÓPQRSŚTUVWXYZŹŻ0123456789.,;:!?()[]\"'-/%▁"
BYTE_LEVEL_SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)


def train_tokenizer(style: str, vocab_size: int, documents: list[str]) -> Tokenizer:
    """Train one tokenizer. *style* is `target`, `bytes` or `polish`; *vocab_size* counts the control tokens too."""
    if style == "bytes":
        tokenizer = _train_byte_level(vocab_size - len(TURN_TOKENS), documents)
    else:
        tokenizer = _train_sentencepiece(style, vocab_size - len(TURN_TOKENS), documents)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in TURN_TOKENS])
    return tokenizer


def _train_sentencepiece(style: str, vocab_size: int, documents: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    # Only training splits words; in use the merges alone decide, as in Mistral's file.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "isolated"),
            pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
            pre_tokenizers.Digits(individual_digits=True),
        ]
    )
    alphabet = {"initial_alphabet": list(POLISH_LETTERS), "limit_alphabet": len(set(POLISH_LETTERS))}
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<unk>", "<s>", "</s>", *BYTE_PIECES],
        show_progress=False,
        **(alphabet if style == "polish" else {"limit_alphabet": 110}),
    )
    tokenizer.train_from_iterator(documents, trainer, len(documents))
    tokenizer = _byte_pieces_as_ordinary(tokenizer)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if style == "polish":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
        )
    return tokenizer


def _byte_pieces_as_ordinary(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer with its byte pieces as plain vocabulary: a text that spells `<0x41>` must not become one."""
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in set(BYTE_PIECES)]
    data["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(data))


def _train_byte_level(vocab_size: int, documents: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(BYTE_LEVEL_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer, len(documents))
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, style: str, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` as `transformers` reads them."""
    tokenizer.save(str(folder / "tokenizer.json"))
    starts = style != "bytes"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "</s>" if starts else "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 8192,
        "chat_template": ("{{- bos_token -}}" if starts else "") + CHATML,
    }
    if starts:
        config |= {"bos_token": "<s>", "unk_token": "<unk>"}
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
