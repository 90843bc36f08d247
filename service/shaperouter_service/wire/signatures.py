"""Signatures and their messages."""

from shaperouter.v1 import signature_pb2
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.wire.translation import Translation

_SIGNATURES = Translation(Signature, signature_pb2.Signature)
signature_to_message = _SIGNATURES.to_message
signature_from_message = _SIGNATURES.from_message
