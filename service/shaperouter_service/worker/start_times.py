"""What a worker's start has taken, by phase."""

import time

import psutil

from shaperouter.v1 import worker_pb2


class StartTimes:
    """The times at which phases of the start ended, on the wall clock: it began in the kernel.

    Written by one thread at a time; read by any.
    """

    def __init__(self) -> None:
        """The code is there."""
        self._message = worker_pb2.StartTimes(
            import_seconds=time.time() - psutil.Process().create_time()
        )
        self._phase_began = time.monotonic()

    def loaded(self) -> None:
        """The weights are there."""
        self._message.weights_seconds = self._lap()

    def made(self, *, covered: bool, warm: bool) -> None:
        """Graphs are there: those that cover every request, and all that come before readiness."""
        if covered and not self._message.HasField("first_cover_seconds"):
            self._message.first_cover_seconds = self._lap()
        if warm and not self._message.HasField("warm_seconds"):
            self._message.warm_seconds = self._lap()

    def to_proto(self) -> worker_pb2.StartTimes:
        """The message of `shaperouter.v1`."""
        return self._message

    def _lap(self) -> float:
        began, self._phase_began = self._phase_began, time.monotonic()
        return self._phase_began - began
