"""Make the golden files of GPT-2: tiny checkpoints, and what the reference generates from them.

The reference is Transformers with PyTorch. The service needs neither, so this script runs in an
environment of its own (``requirements.txt`` beside it) and its output is committed.

Three commands, run from anywhere::

    python tests/goldens/make_goldens.py checkpoints       # 1. draw the tiny checkpoints
    python tests/goldens/make_goldens.py expect DIRECTORY  # 2. write DIRECTORY's goldens
    python tests/goldens/make_goldens.py all               # 1., then 2. for each tiny checkpoint

A directory with a tokenizer gets text prompts, one without gets random token ids.

A golden is only worth comparing with if rounding cannot change it. The tokens come from
``generate`` in float32; each of its steps is then computed once more in float64, without a cache,
and a case is kept only if both agree and if the winner leads by far more than they differ by.
All numbers that are written come from the float64 run, so they do not depend on the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
)

GOLDENS = Path(__file__).resolve().parent
REPOSITORY = GOLDENS.parents[1]

# Below this lead of the best logit over the second, another order of additions could swap them.
MIN_MARGIN = 1e-3
# The lead must also be this many times the largest error that float32 made in the case's logits.
MIN_MARGIN_OVER_ERROR = 20.0
# Lengths around the powers of two and around multiples of 8 and 24: where ladders have their rungs.
PROMPT_LENGTHS = (
    *(1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33),
    *(47, 48, 49, 63, 64, 65, 72, 95, 96, 97),
)
# Lengths up to this one get two prompts: they are where most rungs are.
LAST_DOUBLED_LENGTH = 33
MAX_NEW_TOKENS = 32
# Prompts for the test of sampling's distribution, and the temperatures it is tested at.
PROBABILITY_PROMPT_LENGTHS = (4, 17, 48)
TEMPERATURES = (1.0, 0.7)
# A distribution that is nearly one token would hide errors of sampling: perplexity at least this.
MIN_PERPLEXITY = 5.0
# Each end token must end at least this share of a tiny checkpoint's cases.
MIN_EOS_SHARE = 0.1
# So many of them must reach the last position of the context.
MIN_FULL_CASES = 2
MAX_ATTEMPTS = 1000


class GoldenError(Exception):
    """A golden that would not be worth having; the message says which and why."""


# --- 1. Tiny checkpoints --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyCheckpoint:
    """One random checkpoint: its dimensions, its quirks and how its weights are drawn.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the JSON beside it.
        seed: Of the weights. Changed by hand until the checks of this script pass.
        config: What differs from the defaults of ``GPT2Config``.
        eos_token_ids: Written to ``generation_config.json``; ``config.json`` has the first alone.
        eos_gains: A factor on each end token's output row, which sets how often it wins.
        dtype: Of the weights on disk; the reference computes in float32 whatever it is.
        base_model: Save it as ``GPT2Model``, whose keys lack the prefix ``transformer.``, with
            the buffers that old versions of Transformers kept beside the weights.
        max_shard_size: Above it the weights are split into several files with an index.
    """

    name: str
    seed: int
    config: dict[str, Any]
    eos_token_ids: tuple[int, ...]
    eos_gains: tuple[float, ...]
    dtype: torch.dtype = torch.float32
    base_model: bool = False
    max_shard_size: str = "1GB"


TINY_CHECKPOINTS = (
    # Heads and vocabulary are odd: nothing that splits them divides evenly.
    TinyCheckpoint(
        name="gpt2-odd-heads",
        seed=1,
        config={"n_embd": 48, "n_head": 3, "vocab_size": 101, "n_positions": 128},
        eos_token_ids=(100,),
        eos_gains=(1.3,),
    ),
    # Its own output matrix, an unusual MLP and epsilon, several files, and no end token at all.
    TinyCheckpoint(
        name="gpt2-untied",
        seed=2,
        config={
            "n_embd": 32,
            "n_head": 4,
            "n_inner": 80,
            "vocab_size": 97,
            "n_positions": 128,
            "layer_norm_epsilon": 1e-3,
            "tie_word_embeddings": False,
        },
        eos_token_ids=(),
        eos_gains=(),
        max_shard_size="60KB",
    ),
    # Three end tokens, with the first and the last id among them; a context that is on no ladder.
    TinyCheckpoint(
        name="gpt2-many-eos",
        seed=10,
        config={
            "n_embd": 40,
            "n_head": 5,
            "vocab_size": 120,
            "n_positions": 100,
            "activation_function": "gelu",
            "scale_attn_by_inverse_layer_idx": True,
        },
        eos_token_ids=(119, 0, 57),
        eos_gains=(1.1, 1.7, 1.7),
    ),
    # As the first GPT-2 checkpoints were saved.
    TinyCheckpoint(
        name="gpt2-bare",
        seed=4,
        config={"n_embd": 32, "n_head": 1, "vocab_size": 128, "n_positions": 128},
        eos_token_ids=(64,),
        eos_gains=(1.3,),
        dtype=torch.float16,
        base_model=True,
    ),
)

# Standard deviation of a parameter whose name has this part; the first that fits counts. Matrices
# outweigh embeddings, or a tied model repeats its input. Biases add the same to every position,
# so with large ones a few tokens would win everywhere.
WEIGHT_SPREADS = (
    (".bias", 0.1),
    ("wpe.weight", 0.6),
    ("wte.weight", 0.4),
    ("lm_head.weight", 0.4),
    ("c_proj.weight", 0.5),
    ("weight", 0.4),
)


def draw_weights(model: GPT2LMHeadModel, checkpoint: TinyCheckpoint) -> None:
    """Fill ``model`` with random weights, spread so far that its greedy output is not monotonous.

    Biases and the gains of the layer norms are drawn as well: a freshly initialised model has
    zeros and ones there, with which an implementation that forgets them would still be right.
    """
    rng = np.random.default_rng(checkpoint.seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if ".ln_" in name and name.endswith(".weight"):
            values = 1.0 + 0.3 * values
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))
    with torch.no_grad():
        # Where the embedding is tied this is the embedding itself.
        for token, gain in zip(checkpoint.eos_token_ids, checkpoint.eos_gains, strict=True):
            model.lm_head.weight[token] *= gain


def add_legacy_buffers(directory: Path, config: GPT2Config) -> None:
    """Add each layer's causal mask and masking value, which a reader must ignore.

    ``attn.bias`` is a trap: its name says bias, and it is a mask.
    """
    path = directory / "model.safetensors"
    tensors = load_file(path)
    n = config.n_positions
    for layer in range(config.n_layer):
        mask = torch.ones(n, n, dtype=torch.uint8).tril().view(1, 1, n, n)
        tensors[f"h.{layer}.attn.bias"] = mask
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4, dtype=torch.float16)
    save_file(tensors, path, metadata={"format": "pt"})


def write_checkpoint(checkpoint: TinyCheckpoint) -> Path:
    """Write ``checkpoint`` in the Hugging Face layout and return its directory."""
    first_eos = checkpoint.eos_token_ids[0] if checkpoint.eos_token_ids else None
    config = GPT2Config(
        n_layer=2, bos_token_id=first_eos, eos_token_id=first_eos, **checkpoint.config
    )
    model = GPT2LMHeadModel(config)
    draw_weights(model, checkpoint)
    model.to(checkpoint.dtype)

    directory = GOLDENS / checkpoint.name
    # Shards left over from an earlier run would be read as well.
    shutil.rmtree(directory, ignore_errors=True)
    saved = model.transformer if checkpoint.base_model else model
    saved.save_pretrained(directory, max_shard_size=checkpoint.max_shard_size)
    if checkpoint.base_model:
        add_legacy_buffers(directory, saved.config)
    many = len(checkpoint.eos_token_ids) > 1
    GenerationConfig(
        bos_token_id=first_eos,
        eos_token_id=list(checkpoint.eos_token_ids) if many else first_eos,
    ).save_pretrained(directory)
    for path in directory.glob("*.safetensors"):
        path.chmod(0o644)  # Their writer lets nobody else read them.
    return directory


# --- 2. Expected continuations --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Continuation:
    """What the reference generates greedily after one prompt.

    Attributes:
        prompt: Token ids of the prompt.
        max_new_tokens: The limit that was asked for.
        token_ids: The new tokens only, with the end token if one ended it.
        finish_reason: ``eos``, also if that came at the very limit, else ``length``.
        margin: The best logit less the second best in float64, of the step where that is smallest.
        logit_error: The largest difference of a logit in float32 from the same in float64.
    """

    prompt: list[int]
    max_new_tokens: int
    token_ids: list[int]
    finish_reason: str
    margin: float
    logit_error: float

    @property
    def length(self) -> int:
        """Length of prompt and continuation together."""
        return len(self.prompt) + len(self.token_ids)


class Reference:
    """A checkpoint in the reference implementation: greedy continuations and probabilities."""

    def __init__(self, directory: Path) -> None:
        """Load the checkpoint in ``directory`` twice, in float32 and in float64."""
        self.model = self._load(directory, torch.float32)
        self.exact = self._load(directory, torch.float64)
        self.config: GPT2Config = self.model.config
        eos = self.model.generation_config.eos_token_id
        self.eos_token_ids: list[int] = [eos] if isinstance(eos, int) else list(eos or [])

    @staticmethod
    def _load(directory: Path, dtype: torch.dtype) -> GPT2LMHeadModel:
        return GPT2LMHeadModel.from_pretrained(
            directory, dtype=dtype, attn_implementation="eager", local_files_only=True
        ).eval()

    @torch.inference_mode()
    def exact_logits(self, token_ids: list[int]) -> torch.Tensor:
        """Logits after each of ``token_ids`` in float64, from one pass without a cache. [P, V]."""
        logits: torch.Tensor = self.exact(torch.tensor([token_ids]), use_cache=False).logits[0]
        return logits

    @torch.inference_mode()
    def continue_greedily(self, prompt: list[int], max_new_tokens: int) -> Continuation:
        """Continue ``prompt`` with ``generate``, and measure how safe each step was.

        Raises:
            GoldenError: float64 would have chosen another token at some step.
        """
        input_ids = torch.tensor([prompt])
        output = self.model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            do_sample=False,
            num_beams=1,
            max_new_tokens=max_new_tokens,
            # A batch of one is never padded; naming the token only keeps `generate` quiet.
            pad_token_id=self.eos_token_ids[0] if self.eos_token_ids else 0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        token_ids: list[int] = output.sequences[0, len(prompt) :].tolist()
        ended = token_ids[-1] in self.eos_token_ids
        if not ended and len(token_ids) != max_new_tokens:
            raise GoldenError(f"{len(token_ids)} tokens of {max_new_tokens} and no end token")

        exact = self.exact_logits(prompt + token_ids[:-1])[len(prompt) - 1 :]
        if exact.argmax(-1).tolist() != token_ids:
            raise GoldenError("float32 and float64 choose different tokens")
        best = exact.topk(2).values
        return Continuation(
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            token_ids=token_ids,
            finish_reason="eos" if ended else "length",
            margin=float((best[:, 0] - best[:, 1]).min()),
            logit_error=float((torch.cat(output.logits) - exact).abs().max()),
        )

    def probabilities(self, prompt: list[int], temperature: float) -> list[float]:
        """The distribution of the token after ``prompt``. [V]."""
        logits = self.exact_logits(prompt)[-1]
        values: list[float] = (logits / temperature).softmax(-1).tolist()
        return values


def is_safe(continuation: Continuation) -> bool:
    """Whether every step's lead is large enough that rounding cannot change the token."""
    least = max(MIN_MARGIN, MIN_MARGIN_OVER_ERROR * continuation.logit_error)
    return continuation.margin > least


def is_diverse(continuation: Continuation) -> bool:
    """Whether no token dominates: a repeated token is right for many wrong reasons."""
    (_, most), *_ = Counter(continuation.token_ids).most_common(1)
    return most <= 1 + len(continuation.token_ids) // 3


# --- 2a. Random prompts, for checkpoints without a tokenizer --------------------------------------


def random_prompt(reference: Reference, seed: Iterable[int], length: int) -> list[int]:
    """Token ids over the whole vocabulary, end tokens too: in a prompt they mean nothing."""
    rng = np.random.default_rng(list(seed))
    prompt: list[int] = rng.integers(reference.config.vocab_size, size=length).tolist()
    return prompt


def random_continuation(
    reference: Reference, seed: Iterable[int], length: int, max_new_tokens: int
) -> Continuation:
    """The continuation of the first random prompt of this seed that is safe to compare with."""
    for attempt in range(MAX_ATTEMPTS):
        prompt = random_prompt(reference, (*seed, attempt), length)
        try:
            continuation = reference.continue_greedily(prompt, max_new_tokens)
        except GoldenError:
            continue
        if is_safe(continuation) and is_diverse(continuation):
            return continuation
    raise GoldenError(f"no safe prompt of {length} tokens in {MAX_ATTEMPTS} attempts")


def random_cases(reference: Reference, seed: int) -> Iterator[tuple[str, Continuation]]:
    """Name and continuation of each case of a checkpoint without a tokenizer."""
    n_positions = reference.config.n_positions
    lengths = sorted({n for n in PROMPT_LENGTHS if n < n_positions} | {n_positions - 1})
    plan = [(n, v) for n in lengths for v in range(2 if n <= LAST_DOUBLED_LENGTH else 1)]
    eos_cases = []
    for index, (length, variant) in enumerate(plan):
        room = n_positions - length
        # 11 and 32 share no factor, so the limits go through all of 1 to 32 in a mixed order.
        # A prompt near the end of the context gets all that is left, to reach the last position.
        limit = 1 + index * 11 % MAX_NEW_TOKENS if room > MAX_NEW_TOKENS else room
        continuation = random_continuation(reference, (seed, length, variant), length, limit)
        yield f"p{length}-{'ab'[variant]}", continuation
        if continuation.finish_reason == "eos" and len(continuation.token_ids) > 1:
            eos_cases.append((f"p{length}-{'ab'[variant]}", continuation))

    # The end token as the last one allowed still ends it by `eos`; one token less is `length`.
    for name, case in eos_cases[:: max(1, len(eos_cases) // 2)][:2]:
        limit = len(case.token_ids)
        yield f"{name}-eos-at-limit", reference.continue_greedily(case.prompt, limit)
        yield f"{name}-eos-after-limit", reference.continue_greedily(case.prompt, limit - 1)


def probability_records(reference: Reference, seed: int) -> Iterator[dict[str, Any]]:
    """The next token's whole distribution after a few random prompts, for tests of sampling."""
    for length in PROBABILITY_PROMPT_LENGTHS:
        for attempt in range(MAX_ATTEMPTS):
            prompt = random_prompt(reference, (seed, length, MAX_ATTEMPTS, attempt), length)
            plain = reference.probabilities(prompt, 1.0)
            if math.exp(-sum(p * math.log(p) for p in plain if p)) >= MIN_PERPLEXITY:
                break
        else:
            raise GoldenError(f"no prompt of {length} tokens has a wide distribution after it")
        for temperature in TEMPERATURES:
            values = reference.probabilities(prompt, temperature)
            yield {
                "prompt_token_ids": prompt,
                "temperature": temperature,
                "probabilities": [round(value, 8) for value in values],
            }


def check_random_cases(reference: Reference, cases: list[Continuation]) -> None:
    """Raise a GoldenError if the cases of a tiny checkpoint leave too much untested."""
    ends = Counter(case.token_ids[-1] for case in cases if case.finish_reason == "eos")
    for token in reference.eos_token_ids:
        if ends[token] < MIN_EOS_SHARE * len(cases):
            raise GoldenError(f"token {token} ends only {ends[token]} of {len(cases)} cases")
    full = sum(case.length == reference.config.n_positions for case in cases)
    if full < MIN_FULL_CASES:
        raise GoldenError(f"only {full} cases reach the last position")


# --- 2b. Text prompts, for checkpoints with a tokenizer -------------------------------------------

PROSE = (
    "The lighthouse keeper wrote down the weather every evening. Some days there was little to "
    "say: a light wind, a few clouds, two ships far out. On others he filled a page. He wrote of "
    "the storm that took the small boat, of the fog that stayed for nine days, and of the morning "
    "when the sea was so still that he could hear people talking on the other shore. Nobody had "
    "asked him to keep these notes. He kept them because a day that is written down can be "
    "compared with another, and what can be compared can be understood. "
)
# Name, most new tokens, prompt.
TEXT_PROMPTS = (
    ("word", 32, "TensorFlow is"),
    ("letter", 8, "A"),
    ("newline", 16, "\n"),
    ("sentence", 32, "Once upon a time there was a small house at the edge of the forest. In it"),
    ("question", 1, "Q: How many days are there in a week?\nA:"),
    ("leading-space", 12, "  indented by two spaces, and then"),
    ("digits", 24, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"),
    ("accents", 16, "Die Brücke über den Fluß führt nach Übersee; le café où l'été s'achève"),
    ("scripts", 24, "東京は日本の首都です。Москва — столица России. "),
    # A family joined by zero-width joiners, a flag, a skin tone: one sign, many code points.
    ("emoji", 16, "Good morning 👩‍👩‍👧‍👦 🇫🇷 👍🏽 and welcome to"),
    ("code", 31, "def mean(values):\n    total = 0.0\n    for value in values:\n        total +="),
    ("paragraph", 32, PROSE.strip()),
)
# PROSE has 101 words, so at least about as many tokens whatever the vocabulary.
MIN_PROSE_TOKENS = 64
# Tokens of more prompts, made of PROSE: between the rungs that the other prompts are on.
PROSE_PROMPT_LENGTHS = (100, 200, 333)
# Any of these says that a checkpoint has a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")
# Free positions that the prompts at the end of the context leave.
EDGE_ROOM = (1, 16)


def cut_to_length(tokenizer: PreTrainedTokenizerBase, text: str, length: int) -> str | None:
    """The longest beginning of ``text`` that encodes to exactly ``length`` tokens, if any."""
    low, high = 0, len(text)
    # More text is more tokens, but for a step back where a longer token fits: search around it.
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer.encode(text[:middle])) <= length:
            low = middle
        else:
            high = middle - 1
    for end in range(low, max(0, low - 32), -1):
        if len(tokenizer.encode(text[:end])) == length:
            return text[:end]
    return None


def safe_text_continuation(
    reference: Reference, prompt: list[int], limit: int
) -> Continuation | None:
    """The continuation with the largest limit up to ``limit`` that is safe, if any is.

    A random prompt can be drawn again; a text is chosen for what it is, so its limit gives way.
    """
    for shorter in range(limit, 0, -1):
        try:
            continuation = reference.continue_greedily(prompt, shorter)
        except GoldenError:
            continue
        if is_safe(continuation):
            return continuation
    return None


def text_cases(
    reference: Reference, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str, Continuation]]:
    """Name, prompt's text and continuation of each case of a checkpoint with a tokenizer."""
    n_positions = reference.config.n_positions
    prose = (1 + n_positions // MIN_PROSE_TOKENS) * PROSE
    prompts = list(TEXT_PROMPTS)
    for length in PROSE_PROMPT_LENGTHS:
        text = cut_to_length(tokenizer, prose, min(length, n_positions - MAX_NEW_TOKENS))
        if text is None:
            raise GoldenError(f"the prose cannot be cut to {length} tokens")
        prompts.append((f"prose-{length}", MAX_NEW_TOKENS, text))
    for name, limit, text in prompts:
        prompt: list[int] = tokenizer.encode(text)
        room = n_positions - len(prompt)
        if room < 1:
            raise GoldenError(f"prompt {name!r} has {len(prompt)} tokens of {n_positions}")
        continuation = safe_text_continuation(reference, prompt, min(limit, room))
        if continuation is None:
            raise GoldenError(f"prompt {name!r} has no safe continuation")
        yield name, text, continuation

    for room in EDGE_ROOM:
        # The same prose from another word on, until a continuation reaches the last position.
        words = PROSE.split(" ")
        for start in range(len(words)):
            source = " ".join(words[start:]) + prose
            edge_text = cut_to_length(tokenizer, source, n_positions - room)
            if edge_text is None:
                continue
            edge = safe_text_continuation(reference, tokenizer.encode(edge_text), room)
            if edge is not None and edge.length == n_positions:
                yield f"edge-{room}", edge_text, edge
                break
        else:
            raise GoldenError(f"no safe prompt of n_positions - {room} tokens")


# --- 3. Files -------------------------------------------------------------------------------------


def case_record(name: str, case: Continuation) -> dict[str, Any]:
    """What the JSON holds of a case. The margin is rounded down, so that no reader over-trusts."""
    return {
        "name": name,
        "prompt_token_ids": case.prompt,
        "max_new_tokens": case.max_new_tokens,
        "token_ids": case.token_ids,
        "finish_reason": case.finish_reason,
        "margin": math.floor(case.margin * 1e4) / 1e4,
    }


def dumps(document: dict[str, Any]) -> str:
    """JSON with one line for each top-level key and for each record of a list of records."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            records = ",\n".join("  " + json.dumps(record) for record in value)
            lines.append(f'"{key}": [\n{records}\n]')
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def repository_path(path: Path) -> str:
    """``path`` as seen from the repository, so that the files name no folder of a machine."""
    path = path.resolve()
    return path.relative_to(REPOSITORY).as_posix() if path.is_relative_to(REPOSITORY) else path.name


def expect(directory: Path, output: Path, seed: int) -> None:
    """Write the goldens of the checkpoint in ``directory`` to ``output``."""
    name = directory.resolve().name
    reference = Reference(directory)
    records, cases = [], []
    probabilities: list[dict[str, Any]] = []
    if any((directory / file).exists() for file in TOKENIZER_FILES):
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        for case_name, text, case in text_cases(reference, tokenizer):
            decoded = tokenizer.decode(
                case.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
            records.append({**case_record(case_name, case), "prompt_text": text, "text": decoded})
            cases.append(case)
    else:
        for case_name, case in random_cases(reference, seed):
            records.append(case_record(case_name, case))
            cases.append(case)
        check_random_cases(reference, cases)
        probabilities.extend(probability_records(reference, seed))

    command = (
        f"python tests/goldens/make_goldens.py expect {repository_path(directory)}"
        f" --output {repository_path(output)} --seed {seed}"
    )
    document = {
        "checkpoint": name,
        "command": command,
        "seed": seed,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
            "safetensors": safetensors.__version__,
            "numpy": np.__version__,
        },
        "n_positions": reference.config.n_positions,
        "vocab_size": reference.config.vocab_size,
        "eos_token_ids": reference.eos_token_ids,
        "smallest_margin": min(record["margin"] for record in records),
        "cases": records,
        "probabilities": probabilities,
    }
    output.write_text(dumps(document), encoding="utf-8")

    ends = Counter(case.token_ids[-1] for case in cases if case.finish_reason == "eos")
    print(
        f"{output.name}: {len(cases)} cases, smallest margin {document['smallest_margin']}, "
        f"largest float32 error {max(case.logit_error for case in cases):.1e}, "
        f"{sum(ends.values())} end by eos {dict(sorted(ends.items()))}, "
        f"{sum(case.length == reference.config.n_positions for case in cases)} reach the "
        "last position"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; the exit status is 1 if a golden is not worth having."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("checkpoints", help="draw the tiny checkpoints anew")
    one = commands.add_parser("expect", help="write the goldens of one checkpoint directory")
    one.add_argument("directory", type=Path, help="a GPT-2 checkpoint in the Hugging Face layout")
    one.add_argument("--output", type=Path, help="default: <its name>.json beside this script")
    one.add_argument("--seed", type=int, default=0, help="of random prompts (default: 0)")
    commands.add_parser("all", help="the tiny checkpoints and their goldens")
    options = parser.parse_args(arguments)

    # One thread adds in one order: two runs give the same bits.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # Its warnings and progress bars tell nothing here.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        if options.command == "expect":
            default = GOLDENS / f"{options.directory.resolve().name}.json"
            expect(options.directory, options.output or default, options.seed)
            return 0
        for checkpoint in TINY_CHECKPOINTS:
            directory = write_checkpoint(checkpoint)
            if options.command == "all":
                expect(directory, GOLDENS / f"{checkpoint.name}.json", seed=0)
    except GoldenError as error:
        print(f"make_goldens: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
