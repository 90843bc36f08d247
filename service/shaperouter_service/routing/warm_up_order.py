"""The order of the warm-up: which signatures to make ready first, by their past use."""

import contextlib
from collections.abc import Iterable, Mapping

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic


def warm_up_order(
    records: Iterable[Traffic], ladders: Mapping[str, Ladders | CallLadders], *, limit: int
) -> list[Signature]:
    """Signatures in descending order of expected benefit per second of compiling.

    The benefit is the device time that the signature served, plus the time that its absence cost.
    Both decay, so recent use counts more than equal use long ago. A signature that is no longer in
    the ladders counts for the one that now serves in its place.

    Args:
        records: The traffic of models, one record each.
        ladders: Ladders of the present models; records of other models are ignored.
        limit: Maximum number of signatures to return.
    """
    records = [traffic for traffic in records if traffic.model in ladders]
    now = max((traffic.as_of for traffic in records), default=0.0)
    ranked: list[tuple[float, float, Signature]] = []
    for traffic in records:
        share = traffic.share_left(now)
        for signature, counts in _in_place(traffic, ladders[traffic.model]).items():
            benefit = share * (counts.device_seconds + counts.missed_seconds)
            if not benefit:
                continue
            seconds = (
                counts.compile_seconds / counts.compiles
                if counts.compiles
                else traffic.compile_seconds(signature.kind)
            )
            # Only a record spoilt by a wrong clock has a compile time of zero.
            priority = benefit / max(seconds, 1e-9)
            ranked.append((-priority, -counts.last_used, signature))
    return [signature for _, _, signature in sorted(ranked)[:limit]]


def _in_place(
    traffic: Traffic, ladders: Ladders | CallLadders
) -> dict[Signature, SignatureTraffic]:
    """Counts of each signature of the ladders, including those of signatures that it replaces."""
    tight = ladders.replacing if isinstance(ladders, CallLadders) else ladders.tight
    counts: dict[Signature, SignatureTraffic] = {}
    for signature, own in traffic.signatures.items():
        # Signatures outside the current ladders are dropped, such as those with more rows than
        # there are slots now.
        with contextlib.suppress(ValueError):
            counts.setdefault(tight(signature), SignatureTraffic()).add(own, share=1.0)
    return counts
