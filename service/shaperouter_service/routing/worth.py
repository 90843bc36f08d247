"""Worth: which signatures to make ready first, by what they did before."""

import contextlib
from collections.abc import Iterable, Mapping

from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic


def worth_order(
    records: Iterable[Traffic], ladders: Mapping[str, Ladders], *, limit: int
) -> list[Signature]:
    """Signatures in order of the benefit that a second of compiling them can be expected to have.

    The benefit is the device time that the signature served, and that its absence cost; both are
    faded, so what was used recently goes before what was used as much, but long ago. A signature
    that is none of the ladders any more counts for the one that now serves in its place.

    Args:
        records: The traffic of models, one record each.
        ladders: Of the models there are; records of others are passed over.
        limit: Most signatures to return.
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
            # Compiling takes no time at all only in records that a clock has spoilt.
            worth = benefit / max(seconds, 1e-9)
            ranked.append((-worth, -counts.last_used, signature))
    return [signature for _, _, signature in sorted(ranked)[:limit]]


def _in_place(traffic: Traffic, ladders: Ladders) -> dict[Signature, SignatureTraffic]:
    """What each signature of the ladders did, and those did that it now stands for."""
    counts: dict[Signature, SignatureTraffic] = {}
    for signature, own in traffic.signatures.items():
        # Nothing stands for what ladders do not reach any more, such as rows beyond fewer slots.
        with contextlib.suppress(ValueError):
            counts.setdefault(ladders.tight(signature), SignatureTraffic()).add(own, share=1.0)
    return counts
