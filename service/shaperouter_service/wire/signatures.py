"""Signatures and their messages."""

from collections.abc import Mapping

from shaperouter.v1 import signature_pb2
from shaperouter_service.routing.signatures import GraphKind, Signature

_KIND_TO_MESSAGE: Mapping[GraphKind, signature_pb2.GraphKind] = {
    GraphKind.ENCODE: signature_pb2.GRAPH_KIND_ENCODE,
    GraphKind.PREFILL: signature_pb2.GRAPH_KIND_PREFILL,
    GraphKind.DECODE: signature_pb2.GRAPH_KIND_DECODE,
    GraphKind.ALIGN: signature_pb2.GRAPH_KIND_ALIGN,
}
_KIND_FROM_MESSAGE: Mapping[int, GraphKind] = {
    message: kind for kind, message in _KIND_TO_MESSAGE.items()
}


def kind_from_message(kind: int) -> GraphKind | int:
    """The kind of graph of a number; the number itself if it is unknown."""
    return _KIND_FROM_MESSAGE.get(kind, kind)


def signature_to_message(signature: Signature) -> signature_pb2.Signature:
    """The message of a signature."""
    return signature_pb2.Signature(
        model=signature.model,
        kind=_KIND_TO_MESSAGE[signature.kind],
        rows=signature.rows,
        length=signature.length,
        beams=signature.beams,
    )


def signature_from_message(message: signature_pb2.Signature) -> Signature:
    """The signature of a message."""
    return Signature(
        model=message.model,
        kind=_KIND_FROM_MESSAGE[message.kind],
        rows=message.rows,
        length=message.length,
        beams=message.beams,
    )
