"""Trains the demo model: a GPT-2 small enough to live in the wheel, from scratch.

Steps: read the corpus (`corpus.py`), train the tokenizer (`tokenizer.py`), train the model for a
fixed number of steps, check the saved folder against the model in memory, measure it on held-out
text, write the model card (`card.py`).

The run is a function of the corpus, the seed and the number of threads: steps are counted, never
timed; the order of documents comes from the seed; PyTorch is held to deterministic algorithms. A
checkpoint lets an interrupted run continue with the same result.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is otherwise not deterministic

import card
import corpus
import numpy as np
import torch
from tokenizer import END_OF_TEXT_ID, VOCABULARY, train_tokenizer
from torch.nn import functional
from tqdm import tqdm
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from common.muon import Muon


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Every hyper-parameter of the run; `n_*` are GPT-2's names."""

    n_embd: int = 256  # width
    n_layer: int = 4
    n_head: int = 4  # heads of 64, GPT-2's head size
    n_positions: int = 512
    # (context, steps): short contexts first, since attention over longer ones costs more and
    # teaches little early; the last stage trains every position.
    stages: tuple[tuple[int, int], ...] = ((256, 1200), (512, 300))
    batch_tokens: int = 4096  # tokens of one step; many small steps suit a small budget of tokens
    matrix_lr: float = 0.02  # Muon, for the blocks' matrices
    other_lr: float = 0.004  # AdamW, for embeddings, biases and layer norms
    matrix_decay: float = 0.05  # decoupled, times the learning rate
    warmup_steps: int = 40
    decay_share: float = 0.4  # of all steps, the last ones: linearly to zero; constant before
    clip: float = 1.0  # on the global gradient norm of what AdamW trains; Muon normalises its own
    subject: str = "TensorFlow"  # documents that name it count `subject_weight` times an epoch:
    subject_weight: int = 4  # 4 % of the documents, but what the demo's prompts are about
    seed: int = 20

    @property
    def steps(self) -> int:
        """All optimizer steps of the run."""
        return sum(steps for _, steps in self.stages)

    def learning_rate_factor(self, step: int) -> float:
        """Factor of both learning rates at a step, counted from 0."""
        warm = min(1.0, (step + 1) / self.warmup_steps)
        return warm * min(1.0, (self.steps - step) / (self.decay_share * self.steps))


class HeadLoss(torch.autograd.Function):
    """Mean cross-entropy of the tied head, in chunks of rows, with its gradient at once.

    The logits of a whole batch (4,096 x 8,192 floats) do not fit a CPU's cache; those of a chunk
    do, and are used for loss and gradient before they leave it.
    """

    CHUNK = 1024  # rows

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        """Hidden (N, E), weight (V, E), targets (N,) to the mean loss in nats."""
        loss = hidden.new_zeros(())
        hidden_gradient = torch.empty_like(hidden)
        weight_gradient = torch.zeros_like(weight)
        for start in range(0, len(hidden), HeadLoss.CHUNK):
            rows = hidden[start : start + HeadLoss.CHUNK]
            wanted = targets[start : start + HeadLoss.CHUNK]
            logs = functional.log_softmax(rows @ weight.T, dim=-1)
            index = wanted[:, None]
            loss -= logs.gather(1, index).sum()
            slope = logs.exp_()
            slope.scatter_(1, index, slope.gather(1, index) - 1)
            torch.mm(slope, weight, out=hidden_gradient[start : start + HeadLoss.CHUNK])
            weight_gradient.addmm_(slope.T, rows)
        count = len(hidden)
        ctx.save_for_backward(hidden_gradient.div_(count), weight_gradient.div_(count))
        return loss / count

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        """Gradients for hidden and weight; the targets have none."""
        hidden_gradient, weight_gradient = ctx.saved_tensors
        return hidden_gradient * slope, weight_gradient * slope, None


def new_model(recipe: Recipe, device: torch.device) -> GPT2LMHeadModel:
    """An untrained model; the same recipe gives the same weights."""
    torch.manual_seed(recipe.seed)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=recipe.n_embd,
        n_layer=recipe.n_layer,
        n_head=recipe.n_head,
        n_positions=recipe.n_positions,
        # The same function as GPT-2's "gelu_new", fused; `save` writes the common name.
        activation_function="gelu_pytorch_tanh",
        resid_pdrop=0.0,  # a few epochs over a small corpus underfit: dropout would only slow them
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=END_OF_TEXT_ID,
        eos_token_id=END_OF_TEXT_ID,
        pad_token_id=END_OF_TEXT_ID,
    )
    return GPT2LMHeadModel(config).to(device)


def batches(documents: list[np.ndarray], recipe: Recipe) -> Iterator[torch.Tensor]:
    """One (rows, context + 1) int64 batch a step: all documents in a new order each epoch.

    Documents follow each other with an end-of-text token before each; windows are cut from that
    stream one after the other, each overlapping the next by the one token that is only a target.
    """
    order = np.random.Generator(np.random.PCG64(recipe.seed))
    stream = np.zeros(0, dtype=np.int64)
    for context, steps in recipe.stages:
        rows = recipe.batch_tokens // context
        for _ in range(steps):
            while len(stream) < rows * context + 1:
                shuffled = order.permutation(len(documents))
                stream = np.concatenate([stream, *(documents[i] for i in shuffled)])
            starts = np.arange(rows)[:, None] * context
            yield torch.from_numpy(stream[starts + np.arange(context + 1)])
            stream = stream[rows * context :]


def encode(tokenizer: PreTrainedTokenizerFast, documents: list[str]) -> list[np.ndarray]:
    """Token ids of each document, an end-of-text token before each."""
    encoded = tokenizer(documents, add_special_tokens=False)["input_ids"]
    return [np.array([END_OF_TEXT_ID, *ids], dtype=np.int64) for ids in encoded]


def mix(texts: list[str], documents: list[np.ndarray], recipe: Recipe) -> list[np.ndarray]:
    """The documents of one epoch: each once, those on the recipe's subject several times."""
    again = [d for text, d in zip(texts, documents, strict=True) if recipe.subject in text]
    return documents + again * (recipe.subject_weight - 1)


def maps(matrix: torch.Tensor) -> Sequence[torch.Tensor]:
    """The linear maps of a matrix (inputs, outputs) of GPT-2, which fuses query, key and value."""
    width = min(matrix.shape[1], 4 * matrix.shape[0])
    if matrix.shape[1] == 3 * matrix.shape[0]:
        width = matrix.shape[0]
    return matrix.split(width, dim=1)


@torch.no_grad()
def perplexity(model: GPT2LMHeadModel, documents: list[np.ndarray]) -> float:
    """Perplexity per token over documents laid end to end, in windows of all positions."""
    stream = torch.from_numpy(np.concatenate(documents))
    context = model.config.n_positions
    total = 0.0
    model.eval()
    for start in range(0, len(stream) - 1, context):
        window = stream[start : start + context + 1].to(model.device)
        logits = model(window[None, :-1]).logits[0]
        total += functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return math.exp(total / (len(stream) - 1))


def unigram_perplexity(train: list[np.ndarray], heldout: list[np.ndarray]) -> float:
    """Perplexity per token of the training split's token frequencies, one added to each."""
    counts = np.bincount(np.concatenate(train), minlength=VOCABULARY) + 1.0
    logs = np.log(counts / counts.sum())
    return math.exp(-logs[np.concatenate(heldout)[1:]].mean())


def train(
    model: GPT2LMHeadModel, documents: list[np.ndarray], recipe: Recipe, work: Path
) -> tuple[float, float]:
    """Trains in place, from the last checkpoint in `work` if there is one.

    Returns the seconds spent (of all parts of an interrupted run) and the mean loss, in nats, of
    the last 100 steps.
    """
    matrices = [p for n, p in model.named_parameters() if ".h." in n and p.ndim == 2]
    others = [p for n, p in model.named_parameters() if not (".h." in n and p.ndim == 2)]
    muon = Muon(matrices, recipe.matrix_lr, recipe.matrix_decay, maps=maps)
    adam = torch.optim.AdamW(others, lr=recipe.other_lr, betas=(0.9, 0.95), weight_decay=0.0)
    first, spent, losses = 0, 0.0, []
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=model.device)
        if state["recipe"] != asdict(recipe):
            raise SystemExit(f"{checkpoint} is of another recipe: remove it or choose a new --work")
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        muon.momenta = state["momenta"]
        first, spent, losses = state["step"], state["seconds"], state["losses"]
    started = time.monotonic() - spent
    model.train()
    progress = tqdm(total=recipe.steps, initial=first, desc="train", unit="step", mininterval=10)
    for step, batch in enumerate(batches(documents, recipe)):
        if step < first:
            continue  # already trained on, before the checkpoint
        batch = batch.to(model.device)
        hidden = model.transformer(batch[:, :-1], use_cache=False).last_hidden_state
        loss = HeadLoss.apply(
            hidden.flatten(0, 1), model.transformer.wte.weight, batch[:, 1:].flatten()
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, recipe.clip)
        factor = recipe.learning_rate_factor(step)
        for group in adam.param_groups:
            group["lr"] = recipe.other_lr * factor
        adam.step()
        adam.zero_grad()
        muon.step(factor)
        losses.append(loss.item())
        progress.update()
        if (step + 1) % 20 == 0:
            progress.set_postfix(loss=f"{np.mean(losses[-20:]):.3f}")
        if (step + 1) % 100 == 0 or step + 1 == recipe.steps:
            state = {
                "recipe": asdict(recipe),
                "model": model.state_dict(),
                "adam": adam.state_dict(),
                "momenta": muon.momenta,
                "step": step + 1,
                "seconds": time.monotonic() - started,
                "losses": losses,
            }
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)  # never half a checkpoint
    progress.close()
    return time.monotonic() - started, float(np.mean(losses[-100:]))


def save(
    model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> GPT2LMHeadModel:
    """Writes the folder in float16 and returns the model read back from it, in float32.

    Raises:
        RuntimeError: the folder's model differs from the trained one by more than float16 does.
    """
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.eval()
    probe = torch.arange(model.config.n_positions, device=model.device)[None] * 13 % VOCABULARY
    with torch.no_grad():
        before = model(probe).logits.float().cpu()
    model.config.activation_function = "gelu_new"
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), END_OF_TEXT_ID)
    model.generation_config = GenerationConfig(do_sample=False, **special)
    model.half().save_pretrained(folder)
    model.float().load_state_dict(weights)
    tokenizer.save_pretrained(folder)
    restored = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        after = restored(probe.cpu()).logits
    (folder / "model.safetensors").chmod(0o644)  # safetensors lets only the owner read it
    # float16 keeps 11 bits: relative 2**-11 a weight, summed over few layers.
    worst = ((after - before).abs().max() / before.abs().max()).item()
    if worst > 2**-8:
        raise RuntimeError(f"{folder}: logits differ by {worst:.2%} of the largest")
    print(f"saved folder's logits differ by at most {worst:.4%} of the largest logit")
    return restored


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

    texts = {split: corpus.load(args.corpus, split) for split in ("train", "heldout")}
    tokenizer = train_tokenizer(texts["train"], recipe.n_positions)
    tokens = {split: encode(tokenizer, documents) for split, documents in texts.items()}
    print({split: sum(map(len, documents)) for split, documents in tokens.items()}, "tokens")

    model = new_model(recipe, device)
    untrained = perplexity(model, tokens["heldout"])
    print(f"{model.num_parameters()} parameters, untrained perplexity {untrained:.0f}")
    epoch = mix(texts["train"], tokens["train"], recipe)
    seconds, training_loss = train(model, epoch, recipe, args.work)
    restored = save(model, tokenizer, args.output)
    figures = card.Figures(
        recipe=asdict(recipe),
        parameters=restored.num_parameters(),
        steps=recipe.steps,
        trained_tokens=recipe.steps * recipe.batch_tokens,
        seconds=seconds,
        machine=f"{device.type}, {args.threads} threads, {platform.machine()}",
        versions={"torch": torch.__version__, "python": platform.python_version()},
        train_tokens=sum(map(len, tokens["train"])),
        heldout_tokens=sum(map(len, tokens["heldout"])),
        training_perplexity=math.exp(training_loss),
        heldout_perplexity=perplexity(restored, tokens["heldout"]),
        unigram_perplexity=unigram_perplexity(tokens["train"], tokens["heldout"]),
        untrained_perplexity=untrained,
        samples=card.sample(restored, tokenizer),
    )
    manifest = json.loads((args.corpus / "manifest.json").read_text())
    text = card.render(figures, manifest)
    (args.output / "README.md").write_text(text)
    (args.work / "figures.json").write_text(json.dumps(asdict(figures), indent=2))
    print(text)


if __name__ == "__main__":
    main()
