"""The numbers of proposals that the steps of a run check, which adapt to how many are accepted.

A step with a few more tokens costs slightly more. So a run checks more proposals while they are
accepted and fewer while they are not. At zero it pauses, and each pause is twice as long as the
last. `decoding.speculation` explains why these limits cannot change a token.
"""

from shaperouter_service.decoding import MAX_PROPOSALS, BySource

# Proposals of a run's first steps.
START = 4

# The limit doubles if at least the larger share of proposals was accepted, and halves if less than
# the smaller share was.
GROW_SHARE, SHRINK_SHARE = 0.5, 0.25

# Minimum and maximum length of a pause, in tokens. A text whose proposals are never accepted has
# one step with proposals after each maximum pause.
MIN_PAUSE, MAX_PAUSE = 16, 256


class ProposalLimits:
    """The maximum numbers of proposals of a run's next steps, for each source of proposals.

    Attributes:
        ngram: Those from the run's own sequence.
        draft: Those of the draft model.
    """

    def __init__(self) -> None:
        """Starts with a few proposals."""
        self.ngram, self.draft = ProposalLimit(), ProposalLimit()

    def observe(self, *, tokens: int, proposed: BySource, accepted: BySource) -> None:
        """Adjusts the limits after a call; see `ProposalLimit.observe`."""
        self.ngram.observe(tokens=tokens, proposed=proposed.ngram, accepted=accepted.ngram)
        self.draft.observe(tokens=tokens, proposed=proposed.draft, accepted=accepted.draft)


class ProposalLimit:
    """The maximum number of proposals of a run's next steps.

    Attributes:
        value: The current maximum; 0 while it pauses.
    """

    def __init__(self) -> None:
        """Starts with a few proposals."""
        self.value = START
        self._pause = MIN_PAUSE
        self._left = 0

    def observe(self, *, tokens: int, proposed: int, accepted: int) -> None:
        """Adjusts the limit after a call.

        Args:
            tokens: Tokens that the run got.
            proposed: Proposals that were checked.
            accepted: Proposals that were accepted.
        """
        if self.value == 0:
            self._left -= tokens
            if self._left <= 0:
                self.value = 1
        elif proposed == 0:
            # Without proposals there is nothing to learn.
            return
        elif accepted >= GROW_SHARE * proposed:
            self.value = min(2 * self.value, MAX_PROPOSALS)
            self._pause = MIN_PAUSE
        elif accepted < SHRINK_SHARE * proposed:
            self.value //= 2
            if self.value == 0:
                self._left = self._pause
                self._pause = min(2 * self._pause, MAX_PAUSE)
