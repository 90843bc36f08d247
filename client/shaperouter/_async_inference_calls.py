"""The client's calls of functions and text encoders."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from shaperouter import _inference_messages
from shaperouter._async_base_client import AsyncBaseClient
from shaperouter._inference import Classification, Embeddings, Inference, RankedDocument

if TYPE_CHECKING:
    import numpy.typing as npt


class AsyncInferenceCalls(AsyncBaseClient):
    """The methods that call models that answer once."""

    async def infer(
        self,
        model: str,
        inputs: "Mapping[str, npt.ArrayLike]",
        *,
        outputs: Iterable[str] = (),
        truncate: bool = False,
        explain: bool = False,
        timeout: float | None = None,
    ) -> Inference:
        """Calls a function or a text encoder with arrays, and returns its outputs as arrays.

        Needs NumPy: ``pip install 'shaperouter[numpy]'``.

        Args:
            model: Name of the model; empty for the only one that can be called.
            inputs: The arrays, by name; `Model.call` lists those of a model. Texts are sent as
                bytes. A text encoder takes token ids, or ``text``, or ``text`` and ``text_pair``.
            outputs: Names of the outputs to return. Default: all.
            truncate: Whether to cut texts that are too long for the model. Default: they are
                refused.
            explain: Whether `metadata.routes` of the result shows how the call was routed.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            InvalidArgumentError: An input has the wrong name, data type or shape, or is too large.
            ModelNotFoundError: The service has no such model.
            OverloadedError: The queue is full.
            UnavailableError: There is no connection, or the worker was lost.
            DeadlineError: The timeout passed before the end.
            ImportError: NumPy is not installed.
        """
        request = _inference_messages.infer_request(
            model, inputs, outputs=outputs, truncate=truncate, explain=explain
        )
        return _inference_messages.inference(await self._infer(request, timeout))

    async def embed(
        self,
        texts: str | Iterable[str],
        *,
        model: str = "",
        truncate: bool = False,
        timeout: float | None = None,
    ) -> Embeddings:
        """Computes an embedding of each text.

        All texts are sent in one request, which may have 1 MiB, or more if the service allows it.
        `infer` gives the embeddings as an array.

        Args:
            texts: A text, or several.
            model: Name of the model. Default: the only one that can be called.
            truncate: Whether to cut texts that are too long for the model. Default: they are
                refused.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            InvalidArgumentError: A text is too long, or the model gives no embeddings.
            ShaperouterError: As for `infer`.
        """
        request = _inference_messages.text_request(
            model, texts, outputs=[_inference_messages.EMBEDDING], truncate=truncate
        )
        return _inference_messages.embeddings(await self._infer(request, timeout))

    async def classify(
        self,
        texts: str | Iterable[str],
        text_pairs: str | Iterable[str] | None = None,
        *,
        model: str = "",
        truncate: bool = False,
        timeout: float | None = None,
    ) -> list[Classification]:
        """Scores the classes of each text, or of each pair of texts.

        Args:
            texts: A text, or several.
            text_pairs: The second text of each pair. Default: no pairs.
            model: Name of the model. Default: the only one that can be called.
            truncate: Whether to cut texts that are too long for the model. Default: they are
                refused.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            InvalidArgumentError: A text is too long, or the model is not a classifier.
            ShaperouterError: As for `infer`.
        """
        outputs = [_inference_messages.SCORES, _inference_messages.LABEL]
        request = _inference_messages.text_request(
            model, texts, text_pairs, outputs=outputs, truncate=truncate
        )
        return _inference_messages.classifications(await self._infer(request, timeout))

    async def rerank(
        self,
        query: str,
        documents: str | Iterable[str],
        *,
        model: str = "",
        top: int | None = None,
        truncate: bool = False,
        timeout: float | None = None,
    ) -> list[RankedDocument]:
        """Ranks documents by how well they answer a query, best first.

        Args:
            query: The query.
            documents: A document, or several.
            model: Name of a model that gives each pair one score. Default: the only one that can be
                called.
            top: How many documents to return. Default: all.
            truncate: Whether to cut pairs that are too long for the model. Default: they are
                refused.
            timeout: Deadline of this call in seconds. Default: the client's.

        Raises:
            InvalidArgumentError: A pair is too long, `top` is not a number above 0, or the model is
                not a classifier.
            ShaperouterError: As for `infer`.
        """
        ranked = _inference_messages.documents_of(documents)
        top = _inference_messages.top_of(top)
        request = _inference_messages.text_request(
            model,
            [query] * len(ranked),
            ranked,
            outputs=[_inference_messages.SCORES],
            truncate=truncate,
        )
        return _inference_messages.ranking(await self._infer(request, timeout), ranked, top)
