"""How many proposals the steps of a run check, by how many of its proposals came.

A step of a few tokens costs little more than a step of one, but not nothing. So a run checks more
while its proposals come, fewer while they do not, and then none for a while that doubles each time.
See `decoding.speculation` for why no choice made here can change a token.
"""

from shaperouter_service.decoding import MAX_PROPOSALS

# Proposals of a run's first steps.
START = 4

# A run checks twice as many if at least this share of its proposals came, and half as many if less
# than the smaller share did.
GROW_SHARE, SHRINK_SHARE = 0.5, 0.25

# Tokens that a run gets without proposals, the first time and at most. Text whose proposals never
# come has one step with proposals for each maximum pause.
MIN_PAUSE, MAX_PAUSE = 16, 256


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
            accepted: How many of them came.
        """
        if self.value == 0:
            self._left -= tokens
            if self._left <= 0:
                self.value = 1
        elif proposed == 0:
            # Nothing is learned where nothing repeats.
            return
        elif accepted >= GROW_SHARE * proposed:
            self.value = min(2 * self.value, MAX_PROPOSALS)
            self._pause = MIN_PAUSE
        elif accepted < SHRINK_SHARE * proposed:
            self.value //= 2
            if self.value == 0:
                self._left = self._pause
                self._pause = min(2 * self._pause, MAX_PAUSE)
