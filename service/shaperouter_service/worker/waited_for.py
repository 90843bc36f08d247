"""What a run waits for, in words, for the caller whose deadline passes."""

from collections.abc import Mapping

from shaperouter_service.worker.run import Phase, Run
from shaperouter_service.worker.warm_up import WarmUp

_DOES: Mapping[Phase, str] = {
    Phase.ENCODE: "was to encode its source",
    Phase.PREFILL: "was to read its prompt",
    Phase.ALIGN: "was to align its transcript",
    Phase.DECODE: "was to make its tokens",
    Phase.ENDED: "had just ended it",
}


def waited_for(run: Run, warm_up: WarmUp, now: float) -> str:
    """Says what a run waits for, to stand behind "it waited".

    Args:
        run: One that has not ended.
        warm_up: Its worker's.
        now: On the monotonic clock in seconds.
    """
    if run.stalled_on is not None:
        text = f"{now - run.stalled_since:.3g} s for {run.stalled_on} to be compiled"
        if warm_up.is_done:
            return text
        return f"{text}, while its worker was still starting ({warm_up})"
    if run.phase is Phase.QUEUED:
        return f"{now - run.timings.arrived:.3g} s in the queue for a slot"
    return f"for the device, which {_DOES[run.phase]} ({run.generated} tokens were made)"
