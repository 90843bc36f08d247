"""What is to be expected of runs: few make all the tokens that they may."""

# Weight of the newest run to end. Some tens of runs are what is known of a lane: enough to be
# steady, few enough to follow a change of traffic within a minute of load.
NEWEST = 1 / 32


class EarlyEnds:
    """The share of the tokens they may make that runs have made lately.

    Who asks for a hundred tokens and is done after ten waits for nobody else's hundred either:
    queues would be thought ten times as long as they are, and requests refused for it.

    Written by the device thread; read by any.
    """

    def __init__(self) -> None:
        """Nothing is known: runs are expected to make all."""
        # Replaced as a whole, for those who read meanwhile.
        self._made_of_most = (0.0, 0.0)

    @property
    def share(self) -> float:
        """Of the most tokens, those to expect: above 0, at most 1."""
        made, most = self._made_of_most
        return made / most if most else 1.0

    def ended(self, made: int, most: int) -> None:
        """A run has come to its end by itself.

        Args:
            made: Tokens that it made, at least 1.
            most: Tokens that it might have made.
        """
        before_made, before_most = self._made_of_most
        self._made_of_most = (
            before_made + NEWEST * (made - before_made),
            before_most + NEWEST * (most - before_most),
        )
