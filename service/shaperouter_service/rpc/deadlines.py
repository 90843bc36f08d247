"""The margin before a deadline in which a waiting call is ended with a reason.

When a deadline passes, gRPC ends the call at every hop by its own clock and without a reason. So a
waiting call is ended a moment earlier, by the process that knows what the call waits for.
"""

# The margin in seconds, and its maximum share of the remaining time: enough for the reason to
# arrive before the caller's clock ends the call.
MARGIN, MAX_SHARE = 0.1, 0.1

# Margins of a worker. It answers before its router because it knows more. The router answers for it
# while the worker's interpreter is blocked by tracing.
WORKER_MARGINS = 1.5


def seconds_to_wait(seconds_left: float, margins: float = 1.0) -> float:
    """Seconds that a call may wait.

    Args:
        seconds_left: Seconds until its deadline.
        margins: Number of margins to leave before the deadline.
    """
    return seconds_left - margins * min(MARGIN, MAX_SHARE * max(0.0, seconds_left))
