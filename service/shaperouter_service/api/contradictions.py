"""Checks of options with one another; what is told is as in validation.py.

What an option contradicts may be a default, so options are compared with what they are resolved to.
Only those that are right by themselves are looked at.
"""

from collections.abc import Iterator
from typing import Any

from shaperouter.v1 import generation_pb2, worker_pb2
from shaperouter_service.api.options import NEUTRAL_SAMPLING, NEUTRAL_SEARCH, most_sequences
from shaperouter_service.api.validation import Options, shown
from shaperouter_service.errors import Violation


def contradictions(options: Options, resolved: worker_pb2.RunOptions) -> Iterator[Violation]:
    """Which options contradict others, or what is left to default of them.

    Args:
        options: Each right by itself.
        resolved: The same over the defaults.
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
                description=f"needs num_beams above 1, which is {beams}; got {shown(value)}",
            )
    if beams > 1 and options.stop:
        yield Violation(
            field="options.stop",
            description=f"must be empty with num_beams above 1, which is {beams}; got "
            f"{len(options.stop)} strings",
        )
    if beams > 1 and options.logprobs > 0:
        yield Violation(
            field="options.logprobs",
            description=f"must be 0 with num_beams above 1, which is {beams}; got "
            f"{options.logprobs}",
        )
