"""PredictionService of TensorFlow Serving."""

from typing import Any

from shaperouter_service.edge.grpc_calls import current_call
from shaperouter_service.edge.offloading import translated
from shaperouter_service.edge.tfserving.examples import (
    classifications,
    regressions,
    serialized_examples,
)
from shaperouter_service.edge.tfserving.model_spec import SIGNATURE, model_name, spec_of
from shaperouter_service.edge.tfserving.signatures import (
    CLASSIFY,
    REGRESS,
    call_spec,
    method_of,
    signature_of,
)
from shaperouter_service.edge.tfserving.stubs.tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    input_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from shaperouter_service.edge.tfserving.tensors import tensor_to_message, tensors_from_messages
from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.inference.calls import InferenceRequest, InferenceResult, Tensors
from shaperouter_service.routing.deployments import public_name
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.serving.core import Core

# What a model can be asked about.
_SIGNATURES = "signature_def"

# Maximum characters of a name from a caller in an error.
_SHOWN = 64


class PredictionServicer(prediction_service_pb2_grpc.PredictionServiceServicer):
    """See prediction_service.proto."""

    # The names of methods are gRPC's.
    # ruff: noqa: N802

    def __init__(self, core: Core) -> None:
        """Takes the core."""
        self._core = core

    async def Predict(
        self, request: predict_pb2.PredictRequest, context: Any
    ) -> predict_pb2.PredictResponse:
        """Runs a model on tensors."""
        asked = InferenceRequest(
            model=model_name(request.model_spec),
            inputs=await translated(request.ByteSize(), tensors_from_messages, request.inputs),
            outputs=request.output_filter,
            received_bytes=request.ByteSize(),
        )
        result = await self._core.inference.infer(asked, current_call())
        name = request.model_spec.name or result.model
        return await translated(result.size, _predicted, result, name)

    async def Classify(
        self, request: classification_pb2.ClassificationRequest, context: Any
    ) -> classification_pb2.ClassificationResponse:
        """Classifies examples."""
        result = await self._run_examples(request.model_spec, request.input, CLASSIFY)
        return classification_pb2.ClassificationResponse(
            model_spec=spec_of(request.model_spec.name or result.model),
            result=await translated(result.size, classifications, result.outputs),
        )

    async def Regress(
        self, request: regression_pb2.RegressionRequest, context: Any
    ) -> regression_pb2.RegressionResponse:
        """Predicts a number for each example."""
        result = await self._run_examples(request.model_spec, request.input, REGRESS)
        return regression_pb2.RegressionResponse(
            model_spec=spec_of(request.model_spec.name or result.model),
            result=await translated(result.size, regressions, result.outputs),
        )

    async def GetModelMetadata(
        self, request: get_model_metadata_pb2.GetModelMetadataRequest, context: Any
    ) -> get_model_metadata_pb2.GetModelMetadataResponse:
        """Describes a model's signature."""
        if list(request.metadata_field) != [_SIGNATURES]:
            shown = shortened(str(list(request.metadata_field)), _SHOWN)
            description = f"must be {_SIGNATURES}, got {shown}"
            raise InvalidRequestError(Violation(field="metadata_field", description=description))
        model = self._core.models.get(model_name(request.model_spec))
        signatures = get_model_metadata_pb2.SignatureDefMap(
            signature_def={SIGNATURE: signature_of(call_spec(model))}
        )
        response = get_model_metadata_pb2.GetModelMetadataResponse(
            model_spec=spec_of(model.name, signature=False)
        )
        response.metadata[_SIGNATURES].Pack(signatures)
        return response

    async def _run_examples(
        self, model_spec: model_pb2.ModelSpec, given: input_pb2.Input, method: str
    ) -> InferenceResult:
        size = given.ByteSize()
        asked = InferenceRequest(model=model_name(model_spec), inputs={}, received_bytes=size)
        examples = await translated(size, serialized_examples, given)

        def inputs_of(model: ServedModel) -> Tensors:
            return {_only_input(model, method): examples}

        return await self._core.inference.infer(asked, current_call(), inputs_of)


def _only_input(model: ServedModel, method: str) -> str:
    """The name of the input of a model that takes examples.

    Raises:
        InvalidRequestError: The model's signature is not of this method.
    """
    spec = call_spec(model)
    if (own := method_of(spec)) != method:
        name = public_name(model.name)
        description = f"must have a signature of {method}, but that of {name} is of {own}"
        raise InvalidRequestError(Violation(field="model_spec.name", description=description))
    return spec.inputs[0].name


def _predicted(result: InferenceResult, name: str) -> predict_pb2.PredictResponse:
    return predict_pb2.PredictResponse(
        model_spec=spec_of(name),
        outputs={name: tensor_to_message(array) for name, array in result.outputs.items()},
    )
