"""Train the mini family that ships in `worker/mini/`: one target and three drafts, from plain Polish text.

    pip install -e '.[train]'
    python scripts/train_mini.py --corpus wolnelektury.jsonl --corpus help.jsonl --work /tmp/mini

Seeded and bounded in steps; every stage keeps a checkpoint in --work and a second call goes on from there. Drafts come
first; the target grows out of the trained same-tokenizer draft without changing its function (new layers are identities,
new hidden units write nothing), since from scratch a model of this size learns too little on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from mini_model import Llama, Shape, grow, save_weights
from mini_muon import Muon
from mini_tokenizers import save_tokenizer, train_tokenizer
from tokenizers import Tokenizer

SEED = 2604
CHUNK_CHARS = 2400


@dataclasses.dataclass(frozen=True)
class Cycle:
    """Steps under one rise and fall of the learning rate; a second cycle is a warm restart (SGDR, Loshchilov 2017)."""

    steps: int
    peak_lr: float
    tokens_per_step: int = 2048


@dataclasses.dataclass(frozen=True)
class Stage:
    """One model to train: its name in the family, tokenizer, shape and cycles of training."""

    name: str
    tokenizer: str
    shape: Shape
    cycles: tuple[Cycle, ...]
    grown_from: str | None = None
    #: How much of the trained weights is kept beside those it was grown from: their mean reads better than either.
    trained_share: float = 1.0

    @property
    def steps(self) -> int:
        return sum(cycle.steps for cycle in self.cycles)

    def cycle_at(self, step: int) -> tuple[Cycle, int]:
        """The cycle that *step* of the whole stage lies in, and its number within it."""
        for cycle in self.cycles:
            if step < cycle.steps:
                return cycle, step
            step -= cycle.steps
        raise ValueError(f"step {step} is past the end of {self.name}")


TARGET_VOCAB, BYTES_VOCAB, POLISH_VOCAB = 960, 4096, 8192
STAGES = [
    Stage("mini-draft", "target", Shape(TARGET_VOCAB, 256, 2, 4, 2, 512), (Cycle(3000, 4e-3, 1024), Cycle(5500, 3e-3))),
    Stage("mini-draft-bytes", "bytes", Shape(BYTES_VOCAB, 192, 2, 3, 3, 512), (Cycle(1500, 4e-3),)),
    Stage("mini-draft-polish", "polish", Shape(POLISH_VOCAB, 160, 2, 5, 5, 448, head_dim=32), (Cycle(1500, 4e-3),)),
    Stage("mini-target", "target", Shape(TARGET_VOCAB, 256, 14, 4, 2, 768), (Cycle(300, 1e-3),), "mini-draft", 0.35),
]
VOCABS = {"target": TARGET_VOCAB, "bytes": BYTES_VOCAB, "polish": POLISH_VOCAB}


def main() -> None:
    args = _arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    training, held_out = read_corpus(args.corpus)
    write_held_out(held_out, args.work / "held_out.jsonl")
    print(f"corpus: {len(training)} chunks to train on, {len(held_out)} held out", flush=True)
    for stage in STAGES:
        if args.only and stage.name not in args.only:
            continue
        tokenizer = _tokenizer(stage.tokenizer, [text for text, _ in training], args.work)
        model, measured = train(stage, tokenizer, training, held_out, args.work)
        export(stage, model, tokenizer, measured, args.out / stage.name)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, action="append", required=True, help="JSONL with a `text` field; repeat")
    parser.add_argument("--work", type=Path, required=True, help="checkpoints, tokenizers and the held-out text")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "worker" / "mini")
    parser.add_argument("--only", action="append", help="train only this model of the family; repeat")
    return parser.parse_args()


# -- text ------------------------------------------------------------------------------------------------------------


def read_corpus(paths: list[Path]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Chunks of about 2,400 characters as (text, source): those to train on, and the 2 % held out by their hash."""
    training, held_out = [], []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            document = json.loads(line)
            for chunk in _chunks(document["text"]):
                digest = hashlib.sha256(chunk.encode()).digest()
                (held_out if digest[0] < 5 else training).append((chunk, document["source"]))
    return training, held_out


def _chunks(text: str) -> list[str]:
    chunks, current = [], ""
    for paragraph in text.split("\n"):
        if current and len(current) + len(paragraph) > CHUNK_CHARS:
            chunks.append(current)
            current = ""
        current += paragraph + "\n"
    return [chunk.strip() for chunk in [*chunks, current] if chunk.strip()]


def write_held_out(held_out: list[tuple[str, str]], path: Path) -> None:
    lines = [json.dumps({"text": text, "source": source}, ensure_ascii=False) for text, source in held_out]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _tokenizer(style: str, texts: list[str], work: Path) -> Tokenizer:
    path = work / f"tokenizer-{style}.json"
    if not path.exists():
        train_tokenizer(style, VOCABS[style], texts).save(str(path))
    return Tokenizer.from_file(str(path))


def tokenize(tokenizer: Tokenizer, chunks: list[tuple[str, str]], seed: int) -> np.ndarray:
    """All chunks as one shuffled stream of ids; 15 % of them wrapped as a chat that asks to continue a text."""
    random = np.random.default_rng(seed)
    bos, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("<|im_end|>")
    stop = tokenizer.token_to_id("</s>")
    stop = tokenizer.token_to_id("<|endoftext|>") if stop is None else stop
    start = [] if bos is None else [bos]

    def plain(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    def chat(text: str) -> list[int]:
        cut = max(1, text.find(" ", int(len(text) * random.uniform(0.1, 0.5))))
        opened = tokenizer.token_to_id("<|im_start|>")
        ids = [opened, *plain("user\nKontynuuj tekst: " + text[:cut]), end, *plain("\n")]
        return [*ids, opened, *plain("assistant\n" + text[cut:].strip()), end, *plain("\n")]

    stream: list[np.ndarray] = []
    for index in random.permutation(len(chunks)):
        text = chunks[index][0]
        body = chat(text) if random.random() < 0.15 else [*plain(text), stop]
        stream.append(np.array([*start, *body], dtype=np.int32))
    return np.concatenate(stream)


# -- training --------------------------------------------------------------------------------------------------------


def train(
    stage: Stage, tokenizer: Tokenizer, training: list[tuple[str, str]], held_out: list[tuple[str, str]], work: Path
) -> tuple[Llama, dict[str, float]]:
    """Train *stage* up to its number of steps, from its checkpoint where there is one; returns it with its measures."""
    torch.manual_seed(SEED)
    ids = torch.from_numpy(tokenize(tokenizer, training, SEED).astype(np.int64))
    model = Llama(stage.shape)
    if stage.grown_from:
        grow(_load(work / f"{stage.grown_from}.pt"), model)
    optimizers = _optimizers(model)
    checkpoint, first = work / f"{stage.name}.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        first = state["step"]
    parameters = sum(weight.numel() for weight in model.parameters())
    print(
        f"{stage.name}: {parameters / 1e6:.2f}M parameters, {len(ids) / 1e6:.1f}M tokens, from step {first}", flush=True
    )
    for step in range(first, stage.steps):
        started = time.perf_counter()
        loss = _step(model, optimizers, ids, step, stage)
        if step % 25 == 0:
            rate = stage.cycle_at(step)[0].tokens_per_step / (time.perf_counter() - started)
            print(f"{stage.name} step {step} loss {loss:.3f} {rate:.0f} tok/s", flush=True)
        if (step + 1) % 100 == 0 or step + 1 == stage.steps:
            _save(checkpoint, model, optimizers, step + 1)
    if stage.grown_from:
        _mix_with_start(model, _load(work / f"{stage.grown_from}.pt"), stage.trained_share)
    measured = {"held_out_bits_per_byte": bits_per_byte(model, tokenizer, held_out), "steps": stage.steps}
    print(f"{stage.name}: {measured}", flush=True)
    return model, {**measured, "parameters": parameters}


def _mix_with_start(model: Llama, small: dict[str, torch.Tensor], trained_share: float) -> None:
    """Put *model*'s weights between those that it was grown with from *small* and its own."""
    trained = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(SEED)
    start = Llama(model.shape)
    grow(small, start)
    for name, weight in start.state_dict().items():
        trained[name] = torch.lerp(weight, trained[name], trained_share)
    model.load_state_dict(trained)


def _optimizers(model: Llama) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms; every step sets the rate."""
    matrices = [weight for name, weight in model.named_parameters() if weight.ndim == 2 and "embed" not in name]
    rest = [weight for name, weight in model.named_parameters() if weight.ndim != 2 or "embed" in name]
    return [Muon(matrices, lr=0.0), torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)]


def _step(model: Llama, optimizers: list[torch.optim.Optimizer], ids: torch.Tensor, step: int, stage: Stage) -> float:
    """One update. The last tenth of a cycle reads long windows, so that positions past 512 are known too."""
    cycle, done = stage.cycle_at(step)
    length = min(2048, cycle.tokens_per_step) if done >= 0.9 * cycle.steps else 512
    random = torch.Generator().manual_seed(SEED + step)
    offsets = torch.randint(0, len(ids) - length - 1, (cycle.tokens_per_step // length,), generator=random)
    batch = torch.stack([ids[offset : offset + length + 1] for offset in offsets.tolist()])
    logits = model(batch[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = _rate(done, cycle)
        optimizer.step()
    return float(loss.detach())


def _rate(done: int, cycle: Cycle) -> float:
    """Linear warm-up over 40 steps, flat, then a linear fall over the last 60 % to 5 %."""
    falling = max(0.0, (done - 0.4 * cycle.steps) / (0.6 * cycle.steps))
    return cycle.peak_lr * min(1.0, (done + 1) / 40) * (1.0 - 0.95 * falling)


def bits_per_byte(model: Llama, tokenizer: Tokenizer, held_out: list[tuple[str, str]]) -> float:
    """Held-out loss in bits for a byte of UTF-8, comparable across tokenizers. Reads at most 60 chunks."""
    nats, size_bytes = 0.0, 0
    with torch.no_grad():
        for text, _ in held_out[:60]:
            ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False).ids[:1024]])
            if ids.shape[1] < 2:
                continue
            losses = torch.nn.functional.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:], reduction="sum")
            nats += float(losses)
            size_bytes += len(tokenizer.decode(ids[0, 1:].tolist()).encode())
    return round(nats / math.log(2) / size_bytes, 4)


def _save(path: Path, model: Llama, optimizers: list[torch.optim.Optimizer], step: int) -> None:
    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step}
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def _load(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["model"]


def export(stage: Stage, model: Llama, tokenizer: Tokenizer, measured: dict[str, float], folder: Path) -> None:
    """Write *stage* in Hugging Face layout: float16 safetensors, config, tokenizer, and its measures."""
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(model, folder / "model.safetensors")
    save_tokenizer(tokenizer, stage.tokenizer, folder)
    config = stage.shape.config(tokenizer.token_to_id("<s>"), tokenizer.token_to_id("<|im_end|>"))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "measured.json").write_text(json.dumps(measured, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
