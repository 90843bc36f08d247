"""Rules of aliases: further names whose requests go to models."""

import math
from collections.abc import Sequence

from shaperouter_service.routing.deployments import Target

MAX_TARGETS = 16


def check_targets(targets: Sequence[Target]) -> None:
    """Checks the targets of an alias, apart from their names.

    Raises:
        ValueError: They are too few or too many, or their shares do not add up to 1.
    """
    if not 1 <= len(targets) <= MAX_TARGETS:
        raise ValueError(f"must be 1 to {MAX_TARGETS} models, got {len(targets)}")
    if len({target.model for target in targets}) < len(targets):
        raise ValueError("must name each model once")
    for target in targets:
        check_share(target.share)
    total = math.fsum(target.share for target in targets)
    if not math.isclose(total, 1, abs_tol=1e-6):
        raise ValueError(f"must have shares that add up to 1, got {total:g}")


def check_share(share: float) -> None:
    """Checks a share of requests.

    Raises:
        ValueError: It is not above 0 and at most 1.
    """
    # Also false for NaN.
    if not 0 < share <= 1:
        raise ValueError(f"must be a share above 0 and at most 1, got {share:g}")
