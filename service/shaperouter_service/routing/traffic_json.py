"""Traffic as JSON, with a version and a checksum."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from shaperouter_service.routing.call_ladders import CallLadders
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import Signature
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
        "sizes": [
            {"axis": axis, "size": size, "count": count}
            for (axis, size), count in sorted(traffic.sizes.items())
        ],
        "signatures": [
            {**asdict(signature), "counts": asdict(counts)}
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
        ladders=_value(Ladders if "lanes" in record["ladders"] else CallLadders, record["ladders"]),
        as_of=record["as_of"],
        seconds=record["seconds"],
        prompts=dict(record["prompts"]),
        # Absent in records from before models had encoders.
        sources=dict(record.get("sources", ())),
        runs={(run["beams"], run["final_length"]): run["count"] for run in record["runs"]},
        # Absent in records from before sizes of calls were counted.
        sizes={(one["axis"], one["size"]): one["count"] for one in record.get("sizes", ())},
        signatures={
            _value(Signature, {**one, "model": model}): _value(SignatureTraffic, one["counts"])
            for one in record["signatures"]
        },
    )


def _value(kind: Any, record: Any) -> Any:
    """The value of a type that `asdict` wrote. Fields that the type lacks are ignored.

    Fields that a record lacks have their defaults: it is older than they are.
    """
    kinds = get_args(kind)
    if NoneType in kinds:
        return None if record is None else _value(kinds[0], record)
    if get_origin(kind) is tuple:
        return tuple(_value(kinds[0], each) for each in record)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind).items()
        return kind(**{name: _value(hint, record[name]) for name, hint in hints if name in record})
    return kind(record)
