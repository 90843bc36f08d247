"""Signatures to and from messages."""

from collections.abc import Mapping

from shaperouter.v1 import signature_pb2
from shaperouter_service.routing.signatures import GraphKind, Signature

_TO_PROTO: Mapping[GraphKind, signature_pb2.GraphKind] = {
    GraphKind.PREFILL: signature_pb2.GRAPH_KIND_PREFILL,
    GraphKind.DECODE: signature_pb2.GRAPH_KIND_DECODE,
}
_FROM_PROTO = {message: kind for kind, message in _TO_PROTO.items()}


def signature_to_proto(signature: Signature) -> signature_pb2.Signature:
    """The message of a signature."""
    return signature_pb2.Signature(
        model=signature.model,
        kind=_TO_PROTO[signature.kind],
        rows=signature.rows,
        length=signature.length,
        beams=signature.beams,
    )


def signature_from_proto(message: signature_pb2.Signature) -> Signature:
    """The signature of a message."""
    return Signature(
        model=message.model,
        kind=_FROM_PROTO[message.kind],
        rows=message.rows,
        length=message.length,
        beams=message.beams,
    )
