"""Checks of options against each other, and against what the model has.

An option may contradict a default, so options are compared with the resolved ones. Only options
that are valid by themselves are compared.
"""

from collections.abc import Iterator
from typing import Any

from shaperouter_service.errors import Violation
from shaperouter_service.generation.model_facts import ModelFacts
from shaperouter_service.generation.option import EarlyStopping, Needs, shown
from shaperouter_service.generation.resolution import Given, Resolved, max_sequences
from shaperouter_service.generation.table import OPTIONS


def contradictions(given: Given, resolved: Resolved, model: ModelFacts) -> Iterator[Violation]:
    """Options that contradict others, defaults of others, or the model.

    Args:
        given: Options that are each valid by themselves.
        resolved: The same with every default filled in.
        model: The model that serves them.
    """
    for name, value in given.items():
        lack = _lack(name, given, resolved, model)
        if lack:
            yield Violation(field=f"options.{name}", description=f"{lack}, got {_told(value)}")
    yield from _suppressed_violations(given, resolved)
    beams = resolved["num_beams"]
    if beams > 1 and given.get("logprobs", 0) > 0:
        yield Violation(
            field="options.logprobs",
            description=f"must be 0 if num_beams is above 1 (it is {beams}), got "
            f"{given['logprobs']}",
        )
    if given.get("min_new_tokens", 0) > resolved["max_new_tokens"]:
        yield Violation(
            field="options.min_new_tokens",
            description=f"must be at most {resolved['max_new_tokens']} (max_new_tokens), got "
            f"{given['min_new_tokens']}",
        )
    if given.get("num_return_sequences", 1) > (limit := max_sequences(resolved)):
        if beams > 1:
            rule = f"must be at most {limit} (num_beams)"
        elif resolved["do_sample"]:
            rule = f"must be at most {limit}"
        else:
            rule = "must be 1 without sampling and without beam search"
        yield Violation(
            field="options.num_return_sequences",
            description=f"{rule}, got {given['num_return_sequences']}",
        )


def _suppressed_violations(given: Given, resolved: Resolved) -> Iterator[Violation]:
    """Forced tokens that are suppressed: Transformers would have no token to choose."""
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        if resolved[name] not in resolved["suppress_tokens"]:
            continue
        if name in given:
            field, description = name, f"must not be one of suppress_tokens, got {resolved[name]}"
        else:
            field, description = "suppress_tokens", f"must not contain {name}, got {resolved[name]}"
        yield Violation(field=f"options.{field}", description=description)


def _lack(name: str, given: Given, resolved: Resolved, model: ModelFacts) -> str:
    """Requirements of a given option that are not met; empty if all are."""
    match OPTIONS[name].needs:
        case Needs.SAMPLING if given.get("do_sample") is False:
            return "contradicts do_sample = false"
        case Needs.BEAMS if resolved["num_beams"] == 1:
            return "needs num_beams above 1 (it is 1)"
        case Needs.ENCODER if not model.has_encoder:
            return f"must not be set: model {model.name} has no encoder"
    return ""


def _told(value: Any) -> str:
    if isinstance(value, EarlyStopping):
        return f"EARLY_STOPPING_{value.name}"
    return shown(value)
