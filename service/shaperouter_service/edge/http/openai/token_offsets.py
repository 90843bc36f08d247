"""Places of tokens in the text of a completion."""

from collections.abc import Sequence

from shaperouter_service.generation.events import TokenizedInput
from shaperouter_service.text import Detokenizer


class TokenOffsets:
    """Finds where the tokens of one sequence begin in its text, in characters.

    The lengths of the tokens' own texts do not say it: a token may be part of a character, a
    special token has no text, and SentencePiece drops the first space. A token that ends within a
    character has the place where the character begins, as the ones that complete it.
    """

    def __init__(self, given: TokenizedInput) -> None:
        """Starts with what the sequence begins with."""
        self._given = given
        # New tokens are converted to text as the text itself was.
        self._detokenizer = Detokenizer(given.decode, given.context)
        self._end = len(given.echo)

    def of_prompt(self, token_ids: Sequence[int]) -> list[int]:
        """The offsets of the prompt's tokens, whose text the sequence begins with."""
        detokenizer, text = Detokenizer(self._given.decode), self._given.echo
        offsets, end = [], 0
        for token_id in token_ids:
            # A normalizer may have changed the length of the text.
            offsets.append(min(end + detokenizer.held_characters, len(text)))
            piece = detokenizer.push([token_id])
            end += len(piece) if piece else self._special_width(token_id, text, end)
        return offsets

    def of_next(self, token_ids: Sequence[int]) -> list[int]:
        """The offsets of the sequence's next tokens."""
        offsets = []
        for token_id in token_ids:
            offsets.append(self._end + self._detokenizer.held_characters)
            self._end += len(self._detokenizer.push([token_id]))
        return offsets

    def _special_width(self, token_id: int, text: str, offset: int) -> int:
        """Characters of a special token that the caller wrote into the prompt; otherwise 0."""
        own = self._given.token_text(token_id)
        # A token of spaces may have no text because it is the first one.
        is_special = own.strip() and not self._given.decode([token_id])
        return len(own) if is_special and text.startswith(own, offset) else 0
