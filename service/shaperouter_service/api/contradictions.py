"""Checks of options against each other; violations are described as in validation.py.

An option may contradict a default, so options are compared with the resolved ones. Only options
that are valid by themselves are compared.
"""

from collections.abc import Iterator
from typing import Any

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.api.options import NEUTRAL_SAMPLING, NEUTRAL_SEARCH, most_sequences
from shaperouter_service.api.validation import Options, shown
from shaperouter_service.errors import Violation
from shaperouter_service.text import REPLACEMENT, ClientTokenizer


def contradictions(options: Options, resolved: worker_pb2.RunOptions) -> Iterator[Violation]:
    """Options that contradict others, or defaults of others.

    Args:
        options: Options that are each valid by themselves.
        resolved: The same with every default filled in.
    """
    yield from _sampling_contradictions(options)
    yield from _search_contradictions(options, resolved)
    if options.min_new_tokens > resolved.max_new_tokens:
        yield Violation(
            field="options.min_new_tokens",
            description=f"must be at most {resolved.max_new_tokens} (max_new_tokens), got "
            f"{options.min_new_tokens}",
        )
    if options.num_return_sequences > (most := most_sequences(resolved)):
        if resolved.num_beams > 1:
            rule = f"must be at most {most} (num_beams)"
        elif resolved.do_sample:
            rule = f"must be at most {most}"
        else:
            rule = "must be 1 without sampling and without beam search"
        yield Violation(
            field="options.num_return_sequences",
            description=f"{rule}, got {options.num_return_sequences}",
        )


def search_stop_violations(
    options: Options, resolved: worker_pb2.RunOptions, tokenizer: ClientTokenizer | None
) -> Iterator[Violation]:
    """Stop texts that beam search cannot find, if it generates.

    Args:
        options: Options that are each valid by themselves.
        resolved: The same with every default filled in.
        tokenizer: The model's tokenizer, if it has one.
    """
    if resolved.num_beams == 1 or not options.stop or not tokenizer:
        return
    if not tokenizer.is_concatenative:
        yield Violation(
            field="options.stop",
            description=f"needs num_beams 1, got {resolved.num_beams}: with the tokenizer's "
            f"decoder, {tokenizer.decoder}, beam search cannot tell which tokens "
            "complete a string",
        )
    for index, text in enumerate(options.stop):
        if REPLACEMENT in text:
            yield Violation(
                field=f"options.stop[{index}]",
                description="must not contain U+FFFD if num_beams is above 1 (it is "
                f"{resolved.num_beams})",
            )


def _sampling_contradictions(options: Options) -> Iterator[Violation]:
    fields: Any = NEUTRAL_SAMPLING
    for name in fields:
        if options.HasField("do_sample") and not options.do_sample and options.HasField(name):
            yield Violation(
                field=f"options.{name}",
                description=f"contradicts do_sample = false, got {shown(getattr(options, name))}",
            )


def _search_contradictions(
    options: Options, resolved: worker_pb2.RunOptions
) -> Iterator[Violation]:
    beams = resolved.num_beams
    fields: Any = NEUTRAL_SEARCH
    for name in fields:
        if beams == 1 and options.HasField(name):
            value = getattr(options, name)
            if name == "early_stopping":
                value = generation_pb2.EarlyStopping.Name(value)
            yield Violation(
                field=f"options.{name}",
                description=f"needs num_beams above 1 (it is {beams}), got {shown(value)}",
            )
    if beams > 1 and options.logprobs > 0:
        yield Violation(
            field="options.logprobs",
            description=f"must be 0 if num_beams is above 1 (it is {beams}), got "
            f"{options.logprobs}",
        )
