"""Isolation: a run that workers died with has the device to itself until it gets further.

A worker that dies takes all of its runs with it, and nobody can see which of them it died of. So a
router asks for a run that was on several dead workers to be isolated: the other runs of this worker
pause, whichever router they are from, while the device makes the run's next token. If the worker
dies then, it died of this run; if not, the run was only near, and goes on with the others.

Beam search and alignment tell their router nothing before their end, so they are isolated until
then.
"""

import time
from collections.abc import Collection, Sequence

from shaperouter_service.worker.run import Run

# Seconds between the message that a run is isolated and its first call, which may end the process:
# enough for the message to have left it.
NOTICE = 0.05


def participants(runs: Sequence[Run], half_read: Collection[Run]) -> Sequence[Run]:
    """The runs of a lane that may take part in its next calls.

    Device thread only.

    Args:
        runs: Those that have a slot, in order of admission.
        half_read: Those among them whose prompts are being read, in one batch.
    """
    isolated = [run for run in runs if run.needs_isolation]
    if not isolated:
        return runs
    others = [run for run in runs if not run.needs_isolation]
    if any(run in others for run in half_read):
        # Their batch is read to its end first: its pieces belong together.
        return others
    run = next((run for run in isolated if run in half_read), isolated[0])
    if run.isolate():
        time.sleep(NOTICE)
    return [run]
