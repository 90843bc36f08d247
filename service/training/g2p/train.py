"""Trains the grapheme-to-phoneme model: a T5 small enough to live in the wheel, from scratch.

Steps: read the words (`corpus.py`), train on pairs of word and pronunciation for a fixed number of
steps, check the saved folder against the model in memory. `evaluate.py` measures the result.

The run is a function of the corpus, the seed and the number of threads: steps are counted, never
timed; the order of words and what dropout hides come from the seed; PyTorch is held to
deterministic algorithms. A checkpoint lets an interrupted run continue with the same result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is otherwise not deterministic

import corpus
import numpy as np
import torch
from tokenizer import EOS_ID, PAD_ID, UNKNOWN_ID, VOCABULARY, new_tokenizer
from torch.nn import functional
from tqdm import tqdm
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from common.muon import Muon

IGNORED = -100  # a target that is padding


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every hyper-parameter of the run, under T5's names where it has one."""

    d_model: int = 192
    d_kv: int = 64  # T5's head size
    num_heads: int = 3
    d_ff: int = 768
    num_layers: int = 3
    num_decoder_layers: int = 3
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 32  # the longest word has 28 characters
    max_length: int = 64  # tokens; twice of what the dictionary's longest word needs
    dropout_rate: float = 0.1
    label_smoothing: float = 0.1
    # Words that get an `<unk>` somewhere, so that the model learns to ignore it.
    unknown_share: float = 0.02
    batch_words: int = 768
    epochs: int = 40
    matrix_lr: float = 0.02  # Muon, for the blocks' matrices
    other_lr: float = 0.004  # AdamW, for embeddings, head, position biases and norms
    matrix_decay: float = 0.05  # decoupled, times the learning rate
    warmup_steps: int = 40
    decay_share: float = 0.7  # of all steps: the last ones, over which learning rates fall to zero
    clip: float = 1.0  # on the global gradient norm of what AdamW trains; Muon normalises its own
    seed: int = 20

    def learning_rate_factor(self, step: int, steps_an_epoch: int) -> float:
        """Factor of both learning rates at a step, counted from 0."""
        steps = self.epochs * steps_an_epoch
        return min(1.0, (step + 1) / self.warmup_steps, (steps - step) / (self.decay_share * steps))


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One word and one of its pronunciations, as token ids with `</s>`."""

    source: np.ndarray
    target: np.ndarray


class WordDropout(torch.nn.Module):
    """Dropout that hides the same features at all positions of a word (Gal & Ghahramani, 2016).

    On a CPU, drawing one number for each activation is a quarter of the training's time.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (rows, positions, features); sets some features of each row to zero."""
        if not self.training:
            return hidden
        kept = torch.rand(hidden.shape[0], 1, hidden.shape[2], device=hidden.device) >= self.rate
        return hidden * (kept / (1 - self.rate))


def new_model(recipe: Recipe, device: torch.device) -> T5ForConditionalGeneration:
    """An untrained model; the same recipe gives the same weights."""
    torch.manual_seed(recipe.seed)
    config = T5Config(
        vocab_size=len(VOCABULARY),
        d_model=recipe.d_model,
        d_kv=recipe.d_kv,
        d_ff=recipe.d_ff,
        num_layers=recipe.num_layers,
        num_decoder_layers=recipe.num_decoder_layers,
        num_heads=recipe.num_heads,
        relative_attention_num_buckets=recipe.relative_attention_num_buckets,
        relative_attention_max_distance=recipe.relative_attention_max_distance,
        n_positions=recipe.max_length,  # T5 has no limit, but a service needs one
        feed_forward_proj="relu",
        dropout_rate=0.0,  # ours is put in below, and is not part of the checkpoint
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=PAD_ID,
    )
    model = T5ForConditionalGeneration(config)
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Dropout):
                setattr(module, name, WordDropout(recipe.dropout_rate))
    return model.to(device)


def encode(tokenizer: PreTrainedTokenizerFast, entries: list[corpus.Entry]) -> list[Pair]:
    """A pair for each pronunciation of each word."""
    sources = tokenizer([entry.word for entry in entries])["input_ids"]
    return [
        Pair(
            source=np.array(source, dtype=np.int64),
            target=np.array([*map(VOCABULARY.__getitem__, phonemes), EOS_ID], dtype=np.int64),
        )
        for entry, source in zip(entries, sources, strict=True)
        for phonemes in entry.pronunciations
    ]


def pad(rows: list[np.ndarray], value: int) -> torch.Tensor:
    """Rows of different lengths as one (rows, longest) tensor, filled up at the end."""
    padded = np.full((len(rows), max(map(len, rows))), value, dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return torch.from_numpy(padded)


def epoch_batches(
    pairs: list[Pair], recipe: Recipe, epoch: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Sources and targets of one epoch: each pair once, pairs of like lengths together.

    Each epoch has a new random order: pairs are sorted by length within groups of 16 batches, and
    all batches are then shuffled.
    """
    draw = np.random.Generator(np.random.PCG64([recipe.seed, epoch]))
    order = draw.permutation(len(pairs))
    batches = []
    for start in range(0, len(order), 16 * recipe.batch_words):
        together = sorted(
            order[start : start + 16 * recipe.batch_words],
            key=lambda number: (len(pairs[number].target), len(pairs[number].source)),
        )
        for first in range(0, len(together), recipe.batch_words):
            batches.append([pairs[n] for n in together[first : first + recipe.batch_words]])
    for number in draw.permutation(len(batches)):
        sources = [pair.source for pair in batches[number]]
        for row in np.flatnonzero(draw.random(len(sources)) < recipe.unknown_share):
            place = draw.integers(len(sources[row]))  # before `</s>` at the latest
            sources[row] = np.insert(sources[row], place, UNKNOWN_ID)
        yield pad(sources, PAD_ID), pad([pair.target for pair in batches[number]], IGNORED)


def loss_of(
    model: T5ForConditionalGeneration,
    sources: torch.Tensor,
    targets: torch.Tensor,
    label_smoothing: float,
) -> torch.Tensor:
    """Mean cross-entropy of the targets' tokens, in nats."""
    sources, targets = sources.to(model.device), targets.to(model.device)
    logits = model(
        input_ids=sources, attention_mask=sources != PAD_ID, labels=targets, use_cache=False
    ).logits
    return functional.cross_entropy(
        logits.flatten(0, 1),
        targets.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
    )


@torch.no_grad()
def validation_loss(model: T5ForConditionalGeneration, pairs: list[Pair], recipe: Recipe) -> float:
    """Mean loss without smoothing over a split, each batch of words counted alike."""
    model.eval()
    losses = []
    for start in range(0, len(pairs), recipe.batch_words):
        batch = pairs[start : start + recipe.batch_words]
        sources = pad([pair.source for pair in batch], PAD_ID)
        targets = pad([pair.target for pair in batch], IGNORED)
        losses.append(loss_of(model, sources, targets, label_smoothing=0.0).item())
    model.train()
    return float(np.mean(losses))


def optimizers(
    model: T5ForConditionalGeneration, recipe: Recipe
) -> tuple[list[Muon], torch.optim.AdamW]:
    """Muon for the blocks' matrices, AdamW for all else.

    T5 does not divide attention scores by the root of the head size. Its queries are smaller by
    that factor instead, and so must be their updates.
    """
    queries, matrices, others = [], [], []
    for name, parameter in model.named_parameters():
        if ".block." not in name or parameter.ndim != 2 or "relative_attention_bias" in name:
            others.append(parameter)
        elif name.endswith(".q.weight"):
            queries.append(parameter)
        else:
            matrices.append(parameter)

    def muon(parameters: list[torch.nn.Parameter], lr: float) -> Muon:
        return Muon(parameters, lr, recipe.matrix_decay, maps=lambda weight: (weight.T,))

    return (
        [muon(matrices, recipe.matrix_lr), muon(queries, recipe.matrix_lr * recipe.d_kv**-0.5)],
        torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0),
    )


def draws() -> list[torch.Tensor]:
    """The states of the random generators that dropout uses, on any device."""
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def set_draws(states: list[torch.Tensor]) -> None:
    """Restores the random generators from `draws`, on a machine with the same devices."""
    torch.set_rng_state(states[0].cpu())
    torch.cuda.set_rng_state_all([state.cpu() for state in states[1:]])


def train(
    model: T5ForConditionalGeneration,
    pairs: list[Pair],
    validation: list[Pair],
    recipe: Recipe,
    work: Path,
) -> tuple[int, float]:
    """Trains in place, from the last checkpoint in `work` if there is one.

    Returns the steps, and the seconds of processor time they took over all threads and all parts
    of an interrupted run.
    """
    muons, adam = optimizers(model, recipe)
    others = adam.param_groups[0]["params"]
    steps_an_epoch = sum(1 for _ in epoch_batches(pairs, recipe, 0))
    steps = recipe.epochs * steps_an_epoch
    first, spent = 0, 0.0
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=model.device)
        if state["recipe"] != asdict(recipe):
            raise SystemExit(f"{checkpoint} is of another recipe: remove it or choose a new --work")
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        for muon, momenta in zip(muons, state["momenta"], strict=True):
            muon.momenta = momenta
        set_draws(state["draws"])
        first, spent = state["step"], state["seconds"]
    started = time.process_time() - spent
    model.train()
    progress = tqdm(total=steps, initial=first, desc="train", unit="step", mininterval=10)
    step, losses = 0, []
    for epoch in range(recipe.epochs):
        for sources, targets in epoch_batches(pairs, recipe, epoch):
            step += 1
            if step <= first:
                continue  # already trained on, before the checkpoint
            loss = loss_of(model, sources, targets, recipe.label_smoothing)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(others, recipe.clip)
            factor = recipe.learning_rate_factor(step - 1, steps_an_epoch)
            for group in adam.param_groups:
                group["lr"] = recipe.other_lr * factor
            adam.step()
            adam.zero_grad()
            for muon in muons:
                muon.step(factor)
            losses.append(loss.item())
            progress.update()
            if step % 20 == 0:
                progress.set_postfix(loss=f"{np.mean(losses[-20:]):.3f}")
            if step % 100 == 0 or step == steps:
                state = {
                    "recipe": asdict(recipe),
                    "model": model.state_dict(),
                    "adam": adam.state_dict(),
                    "momenta": [muon.momenta for muon in muons],
                    "draws": draws(),
                    "step": step,
                    "seconds": time.process_time() - started,
                }
                torch.save(state, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").replace(checkpoint)  # never half a checkpoint
        if step > first:
            nats = validation_loss(model, validation, recipe)
            tqdm.write(
                f"epoch {epoch + 1}: training loss {np.mean(losses[-100:]):.4f} (smoothed), "
                f"validation loss {nats:.4f}"
            )
    progress.close()
    return steps, time.process_time() - started


def save(
    model: T5ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    folder: Path,
) -> T5ForConditionalGeneration:
    """Writes the folder in float32 and returns the model read back from it.

    Raises:
        RuntimeError: the folder's model is not the trained one.
    """
    model.eval()
    model.generation_config = GenerationConfig(
        do_sample=False,
        max_new_tokens=recipe.max_length - 1,  # the output begins with a start token
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=PAD_ID,
    )
    model.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # safetensors lets only the owner read it
    tokenizer.save_pretrained(folder)
    restored = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    restored.to(model.device)
    inputs = AutoTokenizer.from_pretrained(folder)("tensorflow", return_tensors="pt")
    probe = inputs["input_ids"].to(model.device)
    with torch.no_grad():
        before = model(input_ids=probe, labels=probe).logits
        after = restored(input_ids=probe, labels=probe).logits
    if not torch.equal(before, after):
        raise RuntimeError(f"{folder}: logits differ from the trained model's")
    return restored


def machine(device: torch.device, threads: int) -> str:
    """Everything besides the recipe that determines the weights."""
    name = f"{threads} threads of {platform.machine()}"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    return f"{name}, PyTorch {torch.__version__.split('+')[0]}"


def main() -> None:
    """Command line: `python train.py --corpus DIR --work DIR --output DIR`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", type=Path, required=True, help="folder corpus.py wrote")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--output", type=Path, required=True, help="folder for the model")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; part of the result")
    args = parser.parse_args()
    recipe = Recipe()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    args.work.mkdir(parents=True, exist_ok=True)

    splits = {split: corpus.load(args.corpus, split) for split in corpus.SPLITS}
    tokenizer = new_tokenizer(recipe.max_length)
    pairs = {split: encode(tokenizer, splits[split]) for split in ("train", "validation")}
    model = new_model(recipe, device)
    print({split: len(of) for split, of in pairs.items()}, "pairs,", model.num_parameters())
    steps, seconds = train(model, pairs["train"], pairs["validation"], recipe, args.work)
    save(model, tokenizer, recipe, args.output)
    run = {
        "recipe": asdict(recipe),
        "steps": steps,
        "processor_seconds": seconds,
        "machine": machine(device, args.threads),
    }
    (args.work / "run.json").write_text(json.dumps(run, indent=2) + "\n")


if __name__ == "__main__":
    main()
