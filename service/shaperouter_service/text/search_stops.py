"""Stop texts that beam search cannot find."""

from collections.abc import Iterator, Sequence

from shaperouter_service.errors import Violation
from shaperouter_service.text.detokenizer import REPLACEMENT
from shaperouter_service.text.tokenizer_threads import ClientTokenizer


def search_stop_violations(
    tokenizer: ClientTokenizer, stop: Sequence[str], num_beams: int
) -> Iterator[Violation]:
    """Checks that beam search can tell which tokens complete a stop text.

    Args:
        tokenizer: The model's tokenizer.
        stop: The stop texts, each within its limits.
        num_beams: Number of hypotheses of the search; 1 means no beam search.
    """
    if num_beams == 1 or not stop:
        return
    if not tokenizer.is_concatenative:
        yield Violation(
            field="options.stop",
            description=f"needs num_beams 1, got {num_beams}: with the tokenizer's decoder, "
            f"{tokenizer.decoder}, beam search cannot tell which tokens complete a string",
        )
    for index, text in enumerate(stop):
        if REPLACEMENT in text:
            yield Violation(
                field=f"options.stop[{index}]",
                description=f"must not contain U+FFFD if num_beams is above 1 (it is {num_beams})",
            )
