"""Which model a request of TensorFlow Serving names, and which of its signatures."""

from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis.model_pb2 import ModelSpec
from shaperouter_service.errors import (
    InvalidRequestError,
    UnknownVersionError,
    Violation,
    shortened,
)

# The version of every model, and the name of its only signature.
VERSION = 1
SIGNATURE = "serving_default"

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


def model_name(spec: ModelSpec) -> str:
    """The name of a request's model.

    Raises:
        UnknownVersionError: The model has no such version or label.
        InvalidRequestError: It has no such signature.
    """
    if spec.HasField("version") and spec.version.value != VERSION:
        raise UnknownVersionError(spec.name, str(spec.version.value))
    if spec.HasField("version_label"):
        raise UnknownVersionError(spec.name, spec.version_label)
    if spec.signature_name not in ("", SIGNATURE):
        shown = shortened(spec.signature_name, _SHOWN)
        description = f"must be {SIGNATURE} or empty, got {shown!r}"
        raise InvalidRequestError(
            Violation(field="model_spec.signature_name", description=description)
        )
    return spec.name


def spec_of(model: str, *, signature: bool = True) -> ModelSpec:
    """The model of a response.

    Args:
        model: The name that the request gave, which may be an alias.
        signature: Whether it was a signature that answered.
    """
    spec = ModelSpec(name=model, signature_name=SIGNATURE if signature else "")
    spec.version.value = VERSION
    return spec
