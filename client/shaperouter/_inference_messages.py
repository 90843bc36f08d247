"""Requests of calls, and results from their messages."""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from shaperouter import _convert, _tensors, _values
from shaperouter._errors import InternalError, InvalidArgumentError
from shaperouter._inference import (
    CallMetadata,
    Classification,
    Embeddings,
    Inference,
    RankedDocument,
)
from shaperouter.v1 import inference_pb2

if TYPE_CHECKING:
    import numpy.typing as npt

# Outputs of text encoders: a vector of each text, or the scores of its classes and the best class.
EMBEDDING, SCORES, LABEL = "embedding", "scores", "label"


def infer_request(
    model: str,
    inputs: "Mapping[str, npt.ArrayLike]",
    *,
    outputs: Iterable[str],
    truncate: bool,
    explain: bool,
) -> inference_pb2.InferRequest:
    """The request of ``Infer`` with arrays.

    Raises:
        InvalidArgumentError: A value cannot be sent.
        ImportError: NumPy is not installed.
    """
    if not isinstance(inputs, Mapping):
        raise InvalidArgumentError.of(
            "inputs", f"must be arrays by name, got {_values.shown(inputs)}"
        )
    return inference_pb2.InferRequest(
        model=_values.text("model", model),
        inputs=[_tensors.tensor_message(name, value) for name, value in inputs.items()],
        outputs=[
            _values.text(f"outputs[{index}]", each)
            for index, each in enumerate(_values.items("outputs", outputs, "names"))
        ],
        truncate=_values.flag("truncate", truncate),
        explain=_values.flag("explain", explain),
    )


def text_request(
    model: str,
    texts: str | Iterable[str],
    pairs: str | Iterable[str] | None = None,
    *,
    outputs: Sequence[str],
    truncate: bool,
) -> inference_pb2.InferRequest:
    """The request of ``Infer`` with texts, or pairs of texts; needs no NumPy.

    Args:
        model: Name of the model.
        texts: The texts.
        pairs: The second text of each; None without pairs.
        outputs: The outputs to return.
        truncate: Whether to cut texts that are too long.

    Raises:
        InvalidArgumentError: A value cannot be sent.
    """
    inputs = [_texts("text", texts)]
    if pairs is not None:
        inputs.append(_texts("text_pair", pairs))
    return inference_pb2.InferRequest(
        model=_values.text("model", model),
        inputs=inputs,
        outputs=outputs,
        truncate=_values.flag("truncate", truncate),
    )


def documents_of(documents: str | Iterable[str]) -> list[str]:
    """The documents to rank; a text alone is one.

    Raises:
        InvalidArgumentError: They are not texts.
    """
    if isinstance(documents, str):
        return [documents]
    given = _values.items("documents", documents, "texts")
    return [_values.text(f"documents[{index}]", each) for index, each in enumerate(given)]


def top_of(top: int | None) -> int | None:
    """Checks how many documents to return.

    Raises:
        InvalidArgumentError: It is not a number above 0.
    """
    if top is None:
        return None
    count = _values.integer("top", top, bits=32)
    if count < 1:
        raise InvalidArgumentError.of("top", f"must be at least 1, got {count}")
    return count


def inference(response: inference_pb2.InferResponse) -> Inference:
    """The result of a call, as arrays."""
    return Inference(
        outputs={each.name: _tensors.array(each) for each in response.outputs},
        metadata=_metadata(response.metadata),
    )


def embeddings(response: inference_pb2.InferResponse) -> Embeddings:
    """The result of an embedder."""
    vectors = tuple(_rows(response, EMBEDDING))
    return Embeddings(vectors=vectors, metadata=_metadata(response.metadata))


def classifications(response: inference_pb2.InferResponse) -> list[Classification]:
    """The result of a classifier."""
    labels = _output(response, LABEL).values
    return [
        Classification(label=label.decode(), score=max(scores), scores=scores)
        for label, scores in zip(labels, _rows(response, SCORES), strict=True)
    ]


def ranking(
    response: inference_pb2.InferResponse, documents: Sequence[str], top: int | None
) -> list[RankedDocument]:
    """The result of a reranker, best first.

    Raises:
        InternalError: The model gives several scores for a pair.
    """
    ranked = []
    for index, scores in enumerate(_rows(response, SCORES)):
        if len(scores) != 1:
            raise InternalError(f"the model gives {len(scores)} scores for a pair, a reranker one")
        document = RankedDocument(index=index, score=scores[0], document=documents[index])
        ranked.append(document)
    ranked.sort(key=lambda each: -each.score)
    return ranked[:top]


def _texts(name: str, values: str | Iterable[str]) -> inference_pb2.Tensor:
    given = [values] if isinstance(values, str) else _values.items(name, values, "texts")
    encoded = [
        _values.text(f"{name}[{index}]", value).encode() for index, value in enumerate(given)
    ]
    return inference_pb2.Tensor(
        name=name, dtype=inference_pb2.DATA_TYPE_BYTES, shape=[len(encoded)], values=encoded
    )


def _output(response: inference_pb2.InferResponse, name: str) -> inference_pb2.Tensor:
    """One output.

    Raises:
        InternalError: The service did not send it.
    """
    for each in response.outputs:
        if each.name == name:
            return each
    raise InternalError(f"the service sent an answer without {name}")


def _rows(response: inference_pb2.InferResponse, name: str) -> Iterable[tuple[float, ...]]:
    """The rows of an output.

    Raises:
        InternalError: It is no matrix of 32-bit floats.
    """
    tensor = _output(response, name)
    if tensor.dtype != inference_pb2.DATA_TYPE_FP32 or len(tensor.shape) != 2:
        raise InternalError(f"the service sent {name} that is no matrix of 32-bit floats")
    numbers = array("f", tensor.content)
    if sys.byteorder == "big":
        numbers.byteswap()
    values, width = numbers.tolist(), tensor.shape[1]
    return (tuple(values[at : at + width]) for at in range(0, len(values), width))


def _metadata(message: inference_pb2.InferMetadata) -> CallMetadata:
    return _convert.copy_fields(
        CallMetadata,
        message,
        graphs=tuple(map(_convert.graph_use, message.graphs)),
        routes=tuple(map(_convert.route, message.routes)),
    )
