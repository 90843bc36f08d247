"""Preparation of calls for workers: texts become token ids, and inputs are checked."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.generation.text_validation import MAX_VIOLATIONS_OF_LIST
from shaperouter_service.inference.calls import InferenceRequest, Tensors, WorkerCall
from shaperouter_service.routing.call_decision import CallShape
from shaperouter_service.routing.call_ladders import ServedCall
from shaperouter_service.routing.served_model import ModelKind, ServedModel
from shaperouter_service.serving.inference.labels import known_outputs, worker_outputs
from shaperouter_service.serving.inference.texts import MASK, TOKENS, TYPES, has_texts, tokenized
from shaperouter_service.tensors.checking import Sizes, sizes_of
from shaperouter_service.tensors.shapes import element_bytes
from shaperouter_service.tensors.specs import CallSpec, TensorSpec
from shaperouter_service.text import ClientTokenizer

# Maximum bytes of all tensors of an answer, which the router holds several times: as a message of
# the worker, as tensors, and as the answer in the form of a protocol.
MAX_ANSWER_BYTES = 128 * 2**20

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


@dataclass(frozen=True, kw_only=True)
class PreparedCall:
    """A checked call.

    Attributes:
        model: Name of the model.
        inputs: The tensors that the model takes.
        outputs: Names of the outputs to return.
        labels: Names of the classes of a classifier; empty if it has none.
        shape: Its sizes.
        tokens: Number of tokens of its texts; 0 for a function.
    """

    model: str
    inputs: Tensors
    outputs: Sequence[str]
    labels: Sequence[str]
    shape: CallShape
    tokens: int

    def worker_call(self, request_id: str, client: str) -> WorkerCall:
        """The call as workers get it."""
        return WorkerCall(
            request_id=request_id,
            client=client,
            model=self.model,
            inputs=self.inputs,
            outputs=worker_outputs(self.outputs),
        )


async def prepare(
    request: InferenceRequest,
    model: ServedModel,
    served: ServedCall,
    tokenizer: ClientTokenizer | None,
) -> PreparedCall:
    """Checks a call and tokenizes its texts.

    Args:
        request: The request as received.
        model: The model that serves it.
        served: How this model is called.
        tokenizer: The model's tokenizer, if it has one.

    Raises:
        InvalidRequestError: It is invalid.
        TextQueueFullError: Too much text is already waiting to be tokenized.
    """
    known = known_outputs(model, served)
    if violations := list(islice(_output_violations(request, known), MAX_VIOLATIONS_OF_LIST)):
        raise InvalidRequestError(*violations)
    inputs, is_encoder = request.inputs, model.kind is not ModelKind.FUNCTION
    if is_encoder and has_texts(inputs):
        inputs = await tokenized(request, model, served.spec, tokenizer)
    elif is_encoder:
        inputs = _with_defaults(inputs, served)
    sizes = sizes_of(inputs, served.spec)
    outputs = request.outputs or known
    violations = [*_size_violations(inputs, served), *_answer_violations(outputs, served, sizes)]
    if is_encoder and not violations:
        violations = list(_token_violations(inputs, model))
    if violations:
        raise InvalidRequestError(*violations)
    return PreparedCall(
        model=model.name,
        inputs=inputs,
        outputs=outputs,
        labels=served.labels,
        shape=CallShape(model=model.name, rows=sizes.rows, sizes=sizes.axes),
        tokens=int(inputs[MASK].sum()) if is_encoder and MASK in inputs else 0,
    )


def _output_violations(request: InferenceRequest, known: Sequence[str]) -> Iterator[Violation]:
    found = set()
    for index, name in enumerate(request.outputs):
        if name not in known:
            description = (
                f"the model has no output {shortened(name, _SHOWN)!r}; it gives {', '.join(known)}"
            )
            yield Violation(field=f"outputs[{index}]", description=description)
        elif name in found:
            description = f"must name each output only once, got {name!r} again"
            yield Violation(field=f"outputs[{index}]", description=description)
        found.add(name)


def _with_defaults(inputs: Tensors, served: ServedCall) -> Tensors:
    """Adds the inputs of a text encoder that have a default: it reads all ids, as one text."""
    ids = inputs.get(TOKENS)
    if ids is None:
        return inputs
    defaults = {
        spec.name: np.full(ids.shape, spec.name == MASK, dtype=spec.dtype.numpy)
        for spec in served.spec.inputs
        if spec.name in (MASK, TYPES)
    }
    return {**defaults, **inputs}


def _size_violations(inputs: Tensors, served: ServedCall) -> Iterator[Violation]:
    """Sizes above the last rungs. A batch may have any size, because workers split it."""
    for axis, ladder in zip(served.spec.axes, served.ladders.axes, strict=True):
        name, dimension = next(iter(axis.inputs.items()))
        size = inputs[name].shape[dimension]
        if ladder.ladder is not None and size > ladder.ladder.maximum:
            description = (
                f"axis {axis.name} (dimension {dimension}) must be at most "
                f"{ladder.ladder.maximum}, got {size}"
            )
            yield Violation(field=f"inputs.{name}", description=description)


def _answer_violations(
    outputs: Sequence[str], served: ServedCall, sizes: Sizes
) -> Iterator[Violation]:
    """An answer that would take too much memory, as far as shapes tell before the call."""
    needed = worker_outputs(outputs)
    due = sum(
        _answer_bytes(each, served.spec, sizes)
        for each in served.spec.outputs
        if each.name in needed
    )
    if due > MAX_ANSWER_BYTES:
        rule = f"must have an answer of at most {MAX_ANSWER_BYTES} bytes, got {due}"
        rows = "" if served.spec.batch is None else f" for {sizes.rows} rows; send fewer in a call"
        yield Violation(field="inputs", description=rule + rows)


def _answer_bytes(output: TensorSpec, spec: CallSpec, sizes: Sizes) -> int:
    """Bytes of an output; 0 if its shape is not known before the call."""
    shape = list(output.shape)
    for axis, size in zip((spec.batch, *spec.axes), (sizes.rows, *sizes.axes), strict=True):
        if axis is not None and output.name in axis.outputs:
            shape[axis.outputs[output.name]] = size
    known = [size for size in shape if size is not None]
    return math.prod(known) * element_bytes(output.dtype) if len(known) == len(shape) else 0


def _token_violations(inputs: Tensors, model: ServedModel) -> Iterator[Violation]:
    """Ids and types that a text encoder does not know; a graph would read others instead."""
    for name, end in ((TOKENS, model.vocab_size), (MASK, 2), (TYPES, model.token_types)):
        if end and name in inputs:
            yield from _outside(name, inputs[name], end)
    if MASK in inputs:
        empty = np.flatnonzero(~np.any(inputs[MASK], axis=1))
        for row in empty[:MAX_VIOLATIONS_OF_LIST]:
            description = f"must have a 1 in each row, got none in row {row}"
            yield Violation(field=f"inputs.{MASK}", description=description)


def _outside(name: str, array: "np.ndarray[Any, Any]", end: int) -> Iterator[Violation]:
    wrong = np.argwhere((array < 0) | (array >= end))
    for place in wrong[:MAX_VIOLATIONS_OF_LIST]:
        index = ", ".join(map(str, place))
        description = f"must be from 0 to {end - 1}, got {array[tuple(place)]} at [{index}]"
        yield Violation(field=f"inputs.{name}", description=description)
