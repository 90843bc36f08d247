"""Isolation: a run that was on dead workers has the device to itself until its next token.

A worker that dies loses all of its runs, and it is unknown which of them killed it. So a router
asks to isolate a run that was on several dead workers: all other runs of this worker, from any
router, pause while the device generates the run's next token. If the worker dies then, this run
killed it. If not, the run continues beside the others.

Runs with beam search or alignment send nothing before their end, so they are isolated until then.
"""

import time
from collections.abc import Collection, Sequence

from shaperouter_service.worker.run import Run

# Seconds from the message that a run is isolated to its first call, which may kill the process:
# enough to send the message.
NOTICE = 0.05


def participants(runs: Sequence[Run], half_read: Collection[Run]) -> Sequence[Run]:
    """The runs of a lane that take part in its next calls. For the device thread only.

    Args:
        runs: The runs that have a slot, in order of admission.
        half_read: The runs whose prompts are partly read; they are in one batch.
    """
    isolated = [run for run in runs if run.needs_isolation]
    if not isolated:
        return runs
    others = [run for run in runs if not run.needs_isolation]
    if any(run in others for run in half_read):
        # Finish reading their batch first, because its pieces belong together.
        return others
    run = next((run for run in isolated if run in half_read), isolated[0])
    if run.isolate():
        time.sleep(NOTICE)
    return [run]
