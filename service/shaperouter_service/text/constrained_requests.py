"""Constraints that contradict other options or the model."""

from collections.abc import Iterator

from shaperouter_service.errors import Violation
from shaperouter_service.generation.resolution import Given, Resolved
from shaperouter_service.text.constraints import CONSTRAINTS
from shaperouter_service.text.tokenizer_threads import ClientTokenizer


def constraint_violations(
    tokenizer: ClientTokenizer, given: Given, resolved: Resolved
) -> Iterator[Violation]:
    """Checks that a request has at most one constraint, and that it can be followed.

    Args:
        tokenizer: The model's tokenizer.
        given: Options that are each valid by themselves.
        resolved: The same with every default filled in.
    """
    first, *others = [name for name in given if name in CONSTRAINTS] or [""]
    for name in others:
        yield Violation(field=f"options.{name}", description=f"must not be set with {first}")
    if not first:
        return
    if not tokenizer.is_constrainable:
        rule = f"must not be set: the tokenizer's decoder, {tokenizer.decoder}, hides the bytes of"
        yield Violation(field=f"options.{first}", description=f"{rule} its tokens")
    if resolved["num_beams"] > 1 and not resolved["eos_token_ids"]:
        rule = f"needs eos_token_ids if num_beams is above 1 (it is {resolved['num_beams']})"
        yield Violation(field=f"options.{first}", description=rule)
