"""How long before its deadline a call that waits is ended with the reason.

When a deadline passes, gRPC ends the call at every hop by its own clock, and says only that. So
what waits for something is ended a moment earlier, by whoever knows what it waits for.
"""

# Seconds before a deadline, and the largest share of the time that a call has: enough for the
# reason to arrive before the caller's own clock ends the call without one.
MARGIN, LARGEST_SHARE = 0.1, 0.1

# What a worker takes of both. It knows more than its router, and so speaks first; while it traces
# its first graphs, which holds up its interpreter, the router has to speak for it.
OF_WORKERS = 1.5


def seconds_to_wait(seconds_left: float, margins: float = 1.0) -> float:
    """Seconds that a call may wait from now on.

    Args:
        seconds_left: Until its deadline.
        margins: How many of them to leave.
    """
    return seconds_left - margins * min(MARGIN, LARGEST_SHARE * max(0.0, seconds_left))
