"""What a call costs by its padded length: measurements, and a guess beyond them."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Places of a cache that take as long to read as all weights do: in GPT-2's sizes 6,000 to 10,000
# have as many bytes. It matters only where too few lengths were measured.
PLACES_LIKE_WEIGHTS = 8000


@dataclass(frozen=True, kw_only=True, order=True)
class MeasuredLength:
    """What calls of one length took.

    Attributes:
        length: Padded, in places.
        seconds: Mean device time of a call.
        calls: How many were measured.
    """

    length: int
    seconds: float
    calls: float


class LengthCost:
    """Device seconds of a call as a function of its padded length; it never falls.

    Between measured lengths it is a line. Before the first and after the last it goes on as the
    shape does, so that with nothing measured it is the shape. Measurements that fall with the
    length can only be noise: neighbours that do are replaced by their mean (isotonic regression).
    """

    def __init__(self, measured: Iterable[MeasuredLength], shape: Callable[[int], float]) -> None:
        """Fits it.

        Args:
            measured: At most one of each length.
            shape: How cost grows with length, positive and in any unit; it never falls.
        """
        self._shape = shape
        points = sorted(measured)
        self._lengths = [point.length for point in points]
        self._seconds = _isotonic(points)

    def __call__(self, length: int) -> float:
        """The seconds of a call that is padded to `length`."""
        if not self._lengths:
            return self._shape(length)
        after = bisect_left(self._lengths, length)
        if after == 0:
            return self._beyond(0, length)
        if after == len(self._lengths):
            return self._beyond(-1, length)
        (x0, x1), (y0, y1) = (
            self._lengths[after - 1 : after + 1],
            self._seconds[after - 1 : after + 1],
        )
        return y0 + (y1 - y0) * (length - x0) / (x1 - x0)

    def _beyond(self, end: int, length: int) -> float:
        return self._seconds[end] * self._shape(length) / self._shape(self._lengths[end])


def prefill_shape(piece: int) -> Callable[[int], float]:
    """How a call grows that reads a prompt, or `piece` tokens of it: with the tokens it computes.

    Each of them attends to the whole padded length besides.
    """
    return lambda length: min(length, piece) * decode_shape(length)


def decode_shape(length: int) -> float:
    """How a step grows: it reads all weights, and the cache."""
    return 1 + length / PLACES_LIKE_WEIGHTS


def _isotonic(points: list[MeasuredLength]) -> list[float]:
    """The closest values that do not fall, in least squares weighted by calls."""
    # Each block is (calls, their seconds, points): it has one value, the mean of its calls.
    blocks: list[tuple[float, float, int]] = []
    for point in points:
        calls, seconds, size = point.calls, point.calls * point.seconds, 1
        while blocks and blocks[-1][1] / blocks[-1][0] > seconds / calls:
            below = blocks.pop()
            calls, seconds, size = calls + below[0], seconds + below[1], size + below[2]
        blocks.append((calls, seconds, size))
    return [seconds / calls for calls, seconds, size in blocks for _ in range(size)]
