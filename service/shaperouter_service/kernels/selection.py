"""The choice between the native kernels and XLA."""

from typing import Literal

import structlog

from shaperouter_service.kernels.library import KernelsUnavailableError
from shaperouter_service.kernels.selfcheck import require

# Values of `--kernels`.
KernelsChoice = Literal["auto", "off"]

log = structlog.get_logger(__name__)


def choose(choice: KernelsChoice) -> str | None:
    """Loads the kernels unless they are switched off, in a process that computes on a CPU.

    Returns:
        The instruction set that they use here; None if XLA computes instead. If the kernels were
        wanted but are unavailable, the log says why and what that costs.
    """
    if choice == "off":
        return None
    try:
        return require()
    except KernelsUnavailableError as error:
        log.warning(
            "no native kernels: XLA computes everything",
            reason=str(error),
            effect="decoding takes twice as long or more, and there are no int8 or int4 weights",
            fix="install a C++17 compiler (g++), and then the service again (make setup)",
        )
        return None
