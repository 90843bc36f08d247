"""Requests to translate from and to a language that they name."""

from collections.abc import Collection, Iterator
from typing import Any

from shaperouter_service.errors import Violation, shortened
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.generation.resolution import Given
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.text import ClientTokenizer

SOURCE, TARGET = "source_language", "target_language"
FORCED = "forced_bos_token_id"
# Codes that an error lists, and maximum characters of a code from a caller in an error.
_LISTED, _SHOWN = 60, 64


def language_violations(
    request: GenerationRequest, model: ServedModel, tokenizer: ClientTokenizer | None
) -> Iterator[Violation]:
    """Violations of the languages that a request names.

    Args:
        request: The request as received.
        model: The model that serves it.
        tokenizer: The model's tokenizer, if it has one.
    """
    if not model.is_encoder_decoder:
        return
    given, languages = request.options, tokenizer.languages if tokenizer else None
    source, target = given.get(SOURCE, ""), given.get(TARGET, "")
    is_text = request.input.text is not None
    if source:
        yield from _code_violations(SOURCE, source, languages.sources if languages else (), model)
        if not is_text:
            yield _violation(SOURCE, "must not be set together with token_ids", source)
    if target:
        codes = languages.target_codes if languages else ()
        yield from _code_violations(TARGET, target, codes, model)
        if FORCED in given:
            yield _violation(TARGET, f"must not be set together with {FORCED}", target)
        if languages and target in languages.prefixes and not is_text:
            yield _violation(TARGET, "must not be set together with token_ids", target)
        decoder = request.decoder_input
        if decoder.text is not None or decoder.token_ids is not None:
            rule = "must not be set together with decoder_text or decoder_token_ids"
            yield _violation(TARGET, rule, target)


def with_target_language(given: Given, tokenizer: ClientTokenizer | None) -> Given:
    """Options that are valid by themselves, with the token that begins the target language."""
    target = given.get(TARGET, "")
    if tokenizer is None or target not in tokenizer.languages.targets:
        return given
    return {**given, FORCED: tokenizer.languages.targets[target]}


def _code_violations(
    name: str, code: str, codes: Collection[str], model: ServedModel
) -> Iterator[Violation]:
    if not codes:
        yield _violation(name, f"must not be set: model {model.name} has no such languages", code)
    elif code not in codes:
        listed = ", ".join(list(codes)[:_LISTED])
        more = f" or {len(codes) - _LISTED} more" if len(codes) > _LISTED else ""
        yield _violation(name, f"must be one of {listed}{more}", code)


def _violation(name: str, rule: str, code: str) -> Violation:
    shown: Any = shortened(repr(code), _SHOWN)
    return Violation(field=f"options.{name}", description=f"{rule}, got {shown}")
