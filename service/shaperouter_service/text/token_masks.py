"""The tokens that a constraint allows after the tokens so far, as bits.

What may follow depends on the tokens alone, so a run continues anywhere.
"""

import time
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from shaperouter_service.text.constraints import ConstraintError, in_words

Tokens = tuple[int, ...]

# CPU seconds that following a constraint may take: for a token of a hypothesis on average, and
# above that. Other runs wait meanwhile. A large schema takes 0.1 ms for a token; grammars that can
# read a text in many ways take up to 300 ms.
TOKEN_SECONDS = 0.005
_RESERVE_SECONDS = 0.5


class ConstrainedVocabulary:
    """A model's vocabulary, as llguidance needs it. Several threads may share it."""

    def __init__(self, tokens: LLTokenizer, size: int) -> None:
        """Takes the vocabulary.

        Args:
            tokens: The bytes of the tokens.
            size: V, the model's vocabulary size.
        """
        self._tokens = tokens
        self._size = size

    def constraint(
        self, grammar: str, eos_token_ids: Sequence[int], generated: Sequence[int]
    ) -> "Constraint":
        """Begins to follow a grammar; takes up to a second for a large one.

        Args:
            grammar: The grammar, see `constraints`.
            eos_token_ids: Tokens that end the text.
            generated: Tokens of the text so far.

        Raises:
            ConstraintError: The grammar cannot be used, or does not allow those tokens.
        """
        return Constraint(
            LLMatcher(self._tokens, grammar, log_level=0),
            self._size,
            eos_token_ids=eos_token_ids,
            ends=self._tokens.eos_tokens,
            generated=generated,
        )


class Constraint:
    """A grammar that the text of one run follows. Only one thread may use it at a time.

    Attributes:
        allowed: For each hypothesis last followed, [ceil(V / 8)] uint8: a bit for each token,
            lowest first, whether it may come next. A hypothesis that the grammar does not allow,
            which beam search never keeps, has none.
        is_complete: Whether the text is complete: nothing may follow any of the hypotheses.
    """

    def __init__(
        self,
        start: LLMatcher,
        size: int,
        *,
        eos_token_ids: Sequence[int],
        ends: Sequence[int],
        generated: Sequence[int],
    ) -> None:
        """Follows the tokens so far; computing what may come next takes longest here.

        Args:
            start: Follows the grammar from its beginning.
            size: V, the model's vocabulary size.
            eos_token_ids: Tokens that end the text.
            ends: Tokens that end a text for the matcher, whether or not they end this one.
            generated: Tokens of the text so far.

        Raises:
            ConstraintError: The grammar cannot be used, or does not allow those tokens.
        """
        self.allowed: Sequence[np.ndarray] = ()
        self.is_complete = False
        self._start = start
        self._matchers: dict[Tokens, LLMatcher] = {}
        self._size = size
        self._eos_token_ids = eos_token_ids
        # Llguidance's own end token may be one beyond the vocabulary.
        bits = 8 * -(-size // 8)
        self._all_ends = {token for token in (*eos_token_ids, *ends) if token < bits}
        self._seconds_left = _RESERVE_SECONDS
        self._follow([tuple(generated)])

    def follow(self, hypotheses: Sequence[Tokens]) -> None:
        """Follows hypotheses to their ends.

        Args:
            hypotheses: Tokens of the text; one without beam search.

        Raises:
            ConstraintError: No hypothesis can continue: the grammar became too expensive to follow,
                or the vocabulary has no token that may follow.
        """
        began = time.thread_time()
        self._follow(hypotheses)
        saved = self._seconds_left + TOKEN_SECONDS * len(hypotheses)
        self._seconds_left = min(_RESERVE_SECONDS, saved) - (time.thread_time() - began)
        if self._seconds_left < 0:
            raise ConstraintError(
                f"following it takes more than {1000 * TOKEN_SECONDS:.0f} ms of CPU time for each "
                "token, as it does if a text can be read in many ways"
            )

    def _follow(self, hypotheses: Sequence[Tokens]) -> None:
        self._matchers = {tokens: self._matcher(tokens) for tokens in hypotheses}
        matchers = [self._matchers[tokens] for tokens in hypotheses]
        self.is_complete = all(each.is_stopped() and not each.is_error() for each in matchers)
        self.allowed = [self._bits(each) for each in matchers]
        if not self.is_complete and not any(bits.any() for bits in self.allowed):
            raise ConstraintError(in_words(matchers[0].get_error()))

    def _matcher(self, tokens: Tokens) -> LLMatcher:
        """The matcher after a hypothesis, which usually is one token longer than a known one."""
        if known := self._matchers.get(tokens):
            return known
        before = self._matchers.get(tokens[:-1])
        matcher = (before or self._start).deep_copy()
        matcher.consume_tokens(list(tokens[-1:] if before else tokens))
        return matcher

    def _bits(self, matcher: LLMatcher) -> np.ndarray:
        size = -(-self._size // 8)
        if matcher.is_stopped():
            bits = np.zeros([size], np.uint8)
        else:
            bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)[:size].copy()
        if matcher.is_error():
            return np.zeros([size], np.uint8)
        # The tokens that end the text are the request's, not the tokenizer's.
        may_end = matcher.is_accepting()
        for token in self._all_ends:
            bits[token // 8] &= ~np.uint8(1 << token % 8)
        for token in self._eos_token_ids if may_end else ():
            bits[token // 8] |= np.uint8(1 << token % 8)
        return bits
