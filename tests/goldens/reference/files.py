"""A JSON file of a checkpoint: all its cases, and what made them."""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import tokenizers
import torch
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from .checkpoints import TINY_CHECKPOINTS
from .distributions import logprob_records, probability_records, sampling_records
from .greedy import check_random_cases, random_cases, text_cases
from .model import Continuation, Reference, SourceReference
from .options import OptionCase, check_option_cases, option_cases, text_option_cases
from .scores import score_records
from .words import word_cases, word_option_cases

# Files of tokenizers: a checkpoint with any of them has one.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.json")
REPOSITORY = Path(__file__).resolve().parents[3]
# Digits of a score; float32 has about seven.
SCORE_DIGITS = 8
# Scores below it get significant digits, larger ones decimals.
SMALL_SCORE = 1e-3


def rounded_down(margin: float) -> float:
    """A margin for the file, rounded down so that it is never overstated."""
    return math.floor(margin * 1e4) / 1e4


def rounded(score: float) -> float:
    """A score for the file; length penalties make some too small for a fixed number of decimals."""
    if abs(score) < SMALL_SCORE:
        return float(f"{score:.{SCORE_DIGITS}g}")
    return round(score, SCORE_DIGITS)


def case_record(name: str, case: Continuation) -> dict[str, Any]:
    """The JSON record of a greedy case."""
    decoder = {"decoder_token_ids": case.decoder_prompt} if case.decoder_prompt else {}
    return {
        "name": name,
        "prompt_token_ids": case.prompt,
        **decoder,
        "max_new_tokens": case.max_new_tokens,
        "token_ids": case.token_ids,
        "finish_reason": case.finish_reason,
        "margin": rounded_down(case.margin),
    }


def option_case_record(
    case: OptionCase, text: str = "", tokenizer: PreTrainedTokenizerBase | None = None
) -> dict[str, Any]:
    """The JSON record of a case with options; includes its texts if there is a tokenizer."""
    generation = case.generation
    sequences: list[dict[str, Any]] = [
        {"token_ids": token_ids, "finish_reason": reason}
        for token_ids, reason in zip(generation.token_ids, generation.finish_reasons, strict=True)
    ]
    for sequence, score in zip(sequences, generation.scores, strict=False):
        sequence["score"] = rounded(score)
    record = {
        "name": case.name,
        "prompt_token_ids": case.prompt,
        "options": case.options,
        "sequences": sequences,
        "margin": rounded_down(case.margin),
    }
    if tokenizer is None:
        return record
    for sequence in sequences:
        sequence["text"] = decoded(tokenizer, sequence["token_ids"])
    return {**record, "prompt_text": text}


def decoded(tokenizer: PreTrainedTokenizerBase, token_ids: list[int]) -> str:
    """The text of new tokens, without special ones."""
    text: str = tokenizer.decode(
        token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return text


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
    """``path`` relative to the repository, so that the files name no folder of a machine."""
    path = path.resolve()
    return path.relative_to(REPOSITORY).as_posix() if path.is_relative_to(REPOSITORY) else path.name


def add(directory: Path, path: Path) -> None:
    """Add the missing cases to the goldens in ``path``; existing cases stay."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    reference, seed = Reference.of(directory), document["seed"]
    share = {checkpoint.name: checkpoint.option_cases for checkpoint in TINY_CHECKPOINTS}
    name = directory.resolve().name
    if "score_cases" not in document:
        document["score_cases"] = list(score_records(reference, seed))
        path.write_text(dumps(document), encoding="utf-8")
        print(f"{path.name}: log-probabilities of prompts")
    if name not in share:
        # Its other cases are texts.
        return
    kept = document["option_cases"]
    known = {case["name"] for case in kept}
    for case in option_cases(reference, seed, share[name], known):
        kept.append(option_case_record(case))
        path.write_text(dumps(document), encoding="utf-8")
        print(f"{path.name}: {case.name}")
    kept = document["sampling_cases"]
    known = {case["name"] for case in kept}
    for record in sampling_records(reference, seed, known):
        kept.append(record)
        path.write_text(dumps(document), encoding="utf-8")
        print(f"{path.name}: {record['name']}")


def expect(directory: Path, output: Path, seed: int) -> None:
    """Write the goldens of the checkpoint in ``directory`` to ``output``."""
    name = directory.resolve().name
    reference = Reference.of(directory)
    records, cases = [], []
    option_records, with_options = [], []
    distributions: dict[str, list[dict[str, Any]]] = {"probabilities": []}
    if any((directory / file).exists() for file in TOKENIZER_FILES):
        tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        reference.tokenizer = tokenizer
        asks_words = isinstance(reference, SourceReference)
        texts_of, option_texts_of = (
            (word_cases, word_option_cases) if asks_words else (text_cases, text_option_cases)
        )
        for case_name, text, case in texts_of(reference, tokenizer):
            texts = {"prompt_text": text, "text": decoded(tokenizer, case.token_ids)}
            records.append({**case_record(case_name, case), **texts})
            cases.append(case)
        for text, option_case in option_texts_of(reference, tokenizer):
            option_records.append(option_case_record(option_case, text, tokenizer))
            with_options.append(option_case)
    else:
        for case_name, case in random_cases(reference, seed):
            records.append(case_record(case_name, case))
            cases.append(case)
        check_random_cases(reference, cases)
        distributions["probabilities"] = list(probability_records(reference, seed))
        tiny = {checkpoint.name: checkpoint.option_cases for checkpoint in TINY_CHECKPOINTS}
        with_options = list(option_cases(reference, seed, tiny.get(name, slice(None))))
        option_records = [option_case_record(case) for case in with_options]
        check_option_cases(with_options)
        distributions["sampling_cases"] = list(sampling_records(reference, seed))
        distributions["logprob_cases"] = list(logprob_records(reference, seed))

    command = (
        f"python tests/goldens/make_goldens.py expect {repository_path(directory)}"
        f" --output {repository_path(output)} --seed {seed}"
    )
    decoder = {}
    if isinstance(reference, SourceReference):
        decoder["decoder_start_token_id"] = reference.before([], {})[0]
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
        "max_length": reference.max_length,
        "vocab_size": reference.vocab_size,
        "eos_token_ids": reference.eos_token_ids,
        **decoder,
        "smallest_margin": min(record["margin"] for record in records),
        "cases": records,
        "option_cases": option_records,
        **distributions,
        "score_cases": list(score_records(reference, seed)),
    }
    output.write_text(dumps(document), encoding="utf-8")

    ends = Counter(case.token_ids[-1] for case in cases if case.finish_reason == "eos")
    print(
        f"{output.name}: {len(cases)} cases, smallest margin {document['smallest_margin']}, "
        f"largest float32 error {max(case.logit_error for case in cases):.1e}, "
        f"{sum(ends.values())} end by eos {dict(sorted(ends.items()))}, "
        f"{sum(case.length == reference.max_length for case in cases)} reach the "
        "last position"
    )
    reasons = Counter(why for case in with_options for why in case.generation.finish_reasons)
    searched = sum(bool(case.generation.scores) for case in with_options)
    print(
        f"  {len(with_options)} cases with options, {searched} of beam search, their sequences "
        f"end by {dict(reasons)}"
    )
