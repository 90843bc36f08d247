"""Traffic as JSON, with a version and a checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import EncoderLadders, Ladders, LaneLadders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic

# Version of the format below. Other versions are refused, because a change of meaning has no other
# mark.
VERSION = 1


class TrafficFormatError(Exception):
    """The text is not traffic, is damaged, or has an unknown version."""


def to_json(traffic: Traffic) -> str:
    """Serializes traffic."""
    record = {
        "model": traffic.model,
        "ladders": asdict(traffic.ladders),
        "as_of": traffic.as_of,
        "seconds": traffic.seconds,
        "prompts": sorted(traffic.prompts.items()),
        "sources": sorted(traffic.sources.items()),
        "runs": [
            {"beams": beams, "final_length": length, "count": count}
            for (beams, length), count in sorted(traffic.runs.items())
        ],
        "signatures": [
            {
                "kind": signature.kind,
                "beams": signature.beams,
                "rows": signature.rows,
                "length": signature.length,
                "counts": asdict(counts),
            }
            for signature, counts in sorted(traffic.signatures.items(), key=lambda item: item[0])
        ],
    }
    return json.dumps({"version": VERSION, "checksum": _checksum(record), "traffic": record})


def from_json(text: str | bytes) -> Traffic:
    """Parses the text of `to_json`.

    Raises:
        TrafficFormatError: It is not such a text.
    """
    try:
        content = json.loads(text)
        version, checksum, record = content["version"], content["checksum"], content["traffic"]
        if version == VERSION and checksum == _checksum(record):
            return _traffic(record)
    # The checksum is right, but the text may come from another program.
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise TrafficFormatError(f"it is not a record of traffic: {error!r}") from error
    if version != VERSION:
        raise TrafficFormatError(f"version must be {VERSION}, got {version!r}")
    raise TrafficFormatError(f"it is damaged: its checksum is not {checksum!r}")


def _checksum(record: Any) -> str:
    canonical = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()


def _traffic(record: Mapping[str, Any]) -> Traffic:
    model = record["model"]
    return Traffic(
        model=model,
        ladders=_ladders(record["ladders"]),
        as_of=record["as_of"],
        seconds=record["seconds"],
        prompts=dict(record["prompts"]),
        # Absent in records from before models had encoders.
        sources=dict(record.get("sources", ())),
        runs={(run["beams"], run["final_length"]): run["count"] for run in record["runs"]},
        signatures={
            Signature(
                model=model,
                kind=GraphKind(one["kind"]),
                beams=one["beams"],
                rows=one["rows"],
                length=one["length"],
            ): SignatureTraffic(**one["counts"])
            for one in record["signatures"]
        },
    )


def _ladders(record: Mapping[str, Any]) -> Ladders:
    encoder = record.get("encoder")
    return Ladders(
        prefill_lengths=_ladder(record["prefill_lengths"]),
        prefill_rows=_ladder(record["prefill_rows"]),
        prefill_batch_tokens=record["prefill_batch_tokens"],
        prefill_piece=record["prefill_piece"],
        lanes=tuple(
            LaneLadders(
                beams=lane["beams"],
                decode_rows=_ladder(lane["decode_rows"]),
                decode_lengths=_ladder(lane["decode_lengths"]),
            )
            for lane in record["lanes"]
        ),
        encoder=encoder
        and EncoderLadders(
            lengths=_ladder(encoder["lengths"]),
            rows=_ladder(encoder["rows"]),
            batch_tokens=encoder["batch_tokens"],
            has_whole_source=encoder["has_whole_source"],
            # Absent in records from before there were transcripts.
            align_lengths=_ladder(aligned) if (aligned := encoder.get("align_lengths")) else None,
        ),
    )


def _ladder(record: Mapping[str, Any]) -> Ladder:
    return Ladder(tuple(record["rungs"]))
