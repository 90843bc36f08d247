"""Cost of a call by its padded length: measured, and extrapolated beyond the measurements."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Positions of a cache that take as long to read as all weights. In models of GPT-2's sizes, 6,000
# to 10,000 have as many bytes. It matters only if too few lengths were measured.
POSITIONS_LIKE_WEIGHTS = 8000


@dataclass(frozen=True, kw_only=True, order=True)
class MeasuredLength:
    """The measured time of calls of one length.

    Attributes:
        length: Padded length, in positions.
        seconds: Mean device time of a call.
        calls: Number of measured calls.
    """

    length: int
    seconds: float
    calls: float


class LengthCost:
    """Device seconds of a call as a non-decreasing function of its padded length.

    Between measured lengths it is linear. Before the first and after the last it is proportional to
    the shape, and without measurements it is the shape itself. Measurements that decrease with the
    length are noise: such neighbours are replaced by their mean (isotonic regression).
    """

    def __init__(self, measured: Iterable[MeasuredLength], shape: Callable[[int], float]) -> None:
        """Fits the function to measurements.

        Args:
            measured: Measurements, at most one of each length.
            shape: How the cost grows with the length: positive, in any unit, non-decreasing.
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
    """Cost growth of calls that read up to `piece` tokens of a prompt: by computed tokens.

    In addition, each token attends to the whole padded length.
    """
    return lambda length: min(length, piece) * decode_shape(length)


def decode_shape(length: int) -> float:
    """Cost growth of a step, which reads all weights and the cache."""
    return 1 + length / POSITIONS_LIKE_WEIGHTS


def _isotonic(points: list[MeasuredLength]) -> list[float]:
    """The closest non-decreasing values, in least squares weighted by calls."""
    # Each block is (calls, their seconds, points) and has one value, the mean of its calls.
    blocks: list[tuple[float, float, int]] = []
    for point in points:
        calls, seconds, size = point.calls, point.calls * point.seconds, 1
        while blocks and blocks[-1][1] / blocks[-1][0] > seconds / calls:
            below = blocks.pop()
            calls, seconds, size = calls + below[0], seconds + below[1], size + below[2]
        blocks.append((calls, seconds, size))
    return [seconds / calls for calls, seconds, size in blocks for _ in range(size)]
