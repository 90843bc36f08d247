"""Checks of options against each other, and against what the model has.

An option may contradict a default, so options are compared with the resolved ones. Only options
that are valid by themselves are compared.
"""

from collections.abc import Iterator
from typing import Any

from shaperouter_service.errors import Violation
from shaperouter_service.generation.option import EarlyStopping, Needs, shown
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.resolution import Given, Resolved, max_sequences
from shaperouter_service.routing.served_model import ServedModel


def contradictions(given: Given, resolved: Resolved, model: ServedModel) -> Iterator[Violation]:
    """Options that contradict others, defaults of others, or the model.

    Args:
        given: Options that are each valid by themselves.
        resolved: The same with every default filled in.
        model: The model that serves them.
    """
    for name, rule in _broken_rules(given, resolved, model):
        description = f"{rule}, got {_told(given[name])}"
        yield Violation(field=f"options.{name}", description=description)
    yield from _suppressed_violations(given, resolved)


def _broken_rules(
    given: Given, resolved: Resolved, model: ServedModel
) -> Iterator[tuple[str, str]]:
    """Options that break a rule about others, and that rule."""
    for name in given:
        if lack := _lack(name, given, resolved, model):
            yield name, lack
    beams, new_tokens = resolved["num_beams"], resolved["max_new_tokens"]
    if beams > 1 and given.get("logprobs", 0) > 0:
        yield "logprobs", f"must be 0 if num_beams is above 1 (it is {beams})"
    if new_tokens == 0:
        if resolved["prompt_logprobs"] is None:
            yield "max_new_tokens", "must be at least 1 unless prompt_logprobs is set"
        for name in ("num_beams", "num_return_sequences"):
            if given.get(name, 1) > 1:
                yield name, "must be 1 if max_new_tokens is 0"
    if given.get("min_new_tokens", 0) > new_tokens:
        yield "min_new_tokens", f"must be at most {new_tokens} (max_new_tokens)"
    if new_tokens and given.get("num_return_sequences", 1) > (limit := max_sequences(resolved)):
        rule = f"must be at most {limit}"
        if beams > 1:
            rule += " (num_beams)"
        elif not resolved["do_sample"]:
            rule = "must be 1 without sampling and without beam search"
        yield "num_return_sequences", rule


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


def _lack(name: str, given: Given, resolved: Resolved, model: ServedModel) -> str:
    """Requirements of a given option that are not met; empty if all are."""
    match OPTIONS[name].needs:
        case Needs.SAMPLING if given.get("do_sample") is False:
            return "contradicts do_sample = false"
        case Needs.BEAMS if resolved["num_beams"] == 1:
            return "needs num_beams above 1 (it is 1)"
        case Needs.ENCODER if not model.is_encoder_decoder:
            return f"must not be set: model {model.name} has no encoder"
    return ""


def _told(value: Any) -> str:
    if isinstance(value, EarlyStopping):
        return f"EARLY_STOPPING_{value.name}"
    return shown(value)
