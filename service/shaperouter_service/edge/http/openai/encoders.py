"""Embeddings, and ranks of documents: calls of text encoders."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shaperouter_service.edge.http.bodies import read_json
from shaperouter_service.edge.http.calls import while_connected
from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.edge.offloading import translated
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.inference.calls import InferenceRequest, InferenceResult
from shaperouter_service.inference.limits import MAX_TEXTS
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.inference.service import InferenceService
from shaperouter_service.tensors.shapes import MAX_TENSOR_BYTES

# The tensors of text encoders.
TEXT, TEXT_PAIR, EMBEDDING, SCORES = "text", "text_pair", "embedding", "scores"
# What errors name that concern all tensors.
ALL = "inputs"

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

# Maximum texts of a request for embeddings, as at OpenAI.
_MAX_TEXTS = 2048


class Encoders:
    """Answers requests for embeddings and ranks."""

    def __init__(self, service: InferenceService) -> None:
        """Takes the core's service."""
        self._service = service

    async def embeddings(self, request: Request, call: Call) -> Response:
        """POST /v1/embeddings."""
        fields = Fields(await read_json(request, limit=MAX_TEXT_REQUEST_BYTES))
        texts, is_list = _texts(fields, "input")
        encoding = fields.text("encoding_format") or "float"
        if encoding not in ("float", "base64"):
            fields.refuse("encoding_format", f"must be 'float' or 'base64', got {told(encoding)}")
        fields.only("dimensions")
        asked = _request(fields, {TEXT: texts}, EMBEDDING)
        words = _CallersWords(
            fields={TEXT: "input", ALL: "input"},
            single="" if is_list else "input",
            gives="embeddings",
        )
        result = await while_connected(request, self._infer(asked, call, words))
        content = await translated(result.size, _embeddings, result, encoding)
        return Response(content, media_type="application/json")

    async def rerank(self, request: Request, call: Call) -> Response:
        """POST /v1/rerank."""
        fields = Fields(await read_json(request, limit=MAX_TEXT_REQUEST_BYTES))
        query, documents = fields.text("query"), _documents(fields)
        if not query:
            fields.refuse("query", "is required")
        elif (due := len(query.encode()) * len(documents)) > MAX_TENSOR_BYTES:
            rule = f"must take at most {MAX_TENSOR_BYTES} bytes, once for each document"
            fields.refuse("query", f"{rule}, got {due} for {len(documents)} documents")
        top = fields.count("top_n")
        if top is not None and top < 1:
            fields.refuse("top_n", f"must be at least 1, got {top}")
        returns = fields.take("return_documents")
        if not isinstance(returns, bool | None):
            fields.refuse("return_documents", f"must be true or false, got {told(returns)}")
        asked = _request(fields, {TEXT: [query] * len(documents), TEXT_PAIR: documents}, SCORES)
        words = _CallersWords(
            fields={TEXT: "query", TEXT_PAIR: "documents", ALL: "documents"},
            single="query",
            gives="scores",
        )
        result = await while_connected(request, self._infer(asked, call, words))
        scores = result.outputs[SCORES]
        if scores.shape[1] != 1:
            rule = f"must be a model with one score for a pair, got {result.model}"
            raise InvalidRequestError.of("model", f"{rule}, which has {scores.shape[1]}")
        best = np.argsort(-scores[:, 0], kind="stable")[:top]
        ranks = [
            {"index": int(index), "relevance_score": float(scores[index, 0])}
            | ({} if returns is False else {"document": {"text": documents[index]}})
            for index in best
        ]
        body = {"id": f"rerank-{call.request_id}", "model": result.model, "results": ranks}
        return JSONResponse(body | {"usage": _usage(result)})

    async def _infer(
        self, asked: InferenceRequest, call: Call, words: "_CallersWords"
    ) -> InferenceResult:
        """Calls the model; the result and errors have the caller's names of model and inputs."""
        try:
            return replace(await self._service.infer(asked, call), model=asked.model)
        except InvalidRequestError as error:
            told = (words.of(each, asked.model) for each in error.violations)
            # The texts of several rows may be one text of the caller.
            raise InvalidRequestError(*dict.fromkeys(told)) from None


@dataclass(frozen=True, kw_only=True)
class _CallersWords:
    """How a caller names what tensors contain.

    Attributes:
        fields: The caller's fields, by names of tensors.
        single: The field that is one text and no list; empty if there is none.
        gives: What the model must give.
    """

    fields: Mapping[str, str]
    single: str
    gives: str

    def of(self, violation: Violation, model: str) -> Violation:
        """A violation in the caller's words."""
        name, bracket, rest = violation.field.removeprefix("inputs.").partition("[")
        if name == "outputs":
            rule = f"must be a text encoder that gives {self.gives}, got {model}"
            return Violation(field="model", description=f"{rule}: {violation.description}")
        field = self.fields.get(name, name)
        index = "" if field == self.single else f"{bracket}{rest}"
        return replace(violation, field=f"{field}{index}")


def _request(fields: Fields, texts: Mapping[str, Sequence[str]], output: str) -> InferenceRequest:
    model = fields.text("model")
    if not model:
        fields.refuse("model", "is required; GET /v1/models lists the models")
    truncates = fields.flag("truncate")
    fields.end()
    inputs = {name: _tensor(values) for name, values in texts.items()}
    return InferenceRequest(
        model=model,
        inputs=inputs,
        outputs=[output],
        truncates=truncates,
        # The texts of the tensors, which may repeat a query, and not only of the body.
        received_bytes=sum(len(text) for tensor in inputs.values() for text in tensor),
    )


def _texts(fields: Fields, name: str) -> tuple[list[str], bool]:
    """A text, or a list of texts; and whether it is a list."""
    value = fields.take(name)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
        rule = "must be a text or a list of texts; token ids are not supported"
        fields.refuse(name, f"{rule}, got {told(value)}")
        return [], True
    if len(texts) > _MAX_TEXTS:
        fields.refuse(name, f"must have at most {_MAX_TEXTS} texts, got {len(texts)}")
    return texts, isinstance(value, list)


def _documents(fields: Fields) -> list[str]:
    """Texts, or objects with a text."""
    value = fields.take("documents")
    given = value if isinstance(value, list) else []
    found = [each.get("text") if isinstance(each, dict) else each for each in given]
    texts = [text for text in found if isinstance(text, str)]
    if not texts or len(texts) < len(given):
        fields.refuse("documents", f"must be a list of texts, got {told(value)}")
        return []
    if len(texts) > MAX_TEXTS:
        fields.refuse("documents", f"must have at most {MAX_TEXTS} texts, got {len(texts)}")
    return texts


def _embeddings(result: InferenceResult, encoding: str) -> bytes:
    """The body of an answer: written row by row, so that other threads get their turns."""
    rows = [
        _JSON.encode(
            {"object": "embedding", "index": index, "embedding": _encoded(vector, encoding)}
        )
        for index, vector in enumerate(result.outputs[EMBEDDING].astype("<f4"))
    ]
    rest = {"object": "list", "model": result.model, "usage": _usage(result)}
    return f'{_JSON.encode(rest)[:-1]},"data":[{",".join(rows)}]}}'.encode()


def _tensor(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.array([text.encode() for text in texts], dtype=object)


def _encoded(vector: np.ndarray[Any, Any], encoding: str) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.tobytes()).decode()
    values: list[float] = vector.tolist()
    return values


def _usage(result: InferenceResult) -> dict[str, int]:
    return {"prompt_tokens": result.tokens, "total_tokens": result.tokens}
