"""The model that fake workers serve."""

from harness.default_options import default_options
from shaperouter.v1 import inference_pb2, model_pb2

VOCAB_SIZE = 320
MAX_LENGTH, SLOTS = 64, 4


def describe_model(name: str, *, revision: str = "") -> model_pb2.Model:
    """The model of fake workers, with a name and a revision."""
    return model_pb2.Model(
        name=name,
        revision=revision,
        family="gpt2",
        kind=model_pb2.MODEL_KIND_DECODER,
        vocab_size=VOCAB_SIZE,
        max_length=MAX_LENGTH,
        default_options=default_options(max_new_tokens=MAX_LENGTH, eos_token_ids=[0]),
        dtype="float32",
        weight_bytes=1_000_000,
        kv_cache_bytes_per_token=100,
        slots=SLOTS,
        ladders=model_pb2.Ladders(
            prefill_lengths=[16, 24, 40, MAX_LENGTH],
            lanes=[
                model_pb2.LaneLadders(
                    beams=beams,
                    decode_rows=[1, 2, SLOTS],
                    decode_lengths=[16, 32, beams * MAX_LENGTH],
                )
                for beams in (1, 4)
            ],
            prefill_rows=[1, 2],
            prefill_batch_tokens=MAX_LENGTH,
            prefill_piece=MAX_LENGTH,
        ),
    )


def describe_encoder_decoder(name: str, *, revision: str = "") -> model_pb2.Model:
    """The same with an encoder, which reads sources of up to `MAX_LENGTH` tokens."""
    model = describe_model(name, revision=revision)
    model.kind = model_pb2.MODEL_KIND_ENCODER_DECODER
    model.max_source_length = MAX_LENGTH
    model.decoder_start_token_id = 0
    model.ladders.encode_lengths[:] = [16, MAX_LENGTH]
    model.ladders.encode_rows[:] = [1, 2]
    model.ladders.encode_batch_tokens = MAX_LENGTH
    return model


def describe_function(name: str) -> model_pb2.Model:
    """A function `y = f(x)` of 32-bit numbers in rows of any length, with a name."""
    axes = [
        model_pb2.Axis(name=axis, inputs={"x": index}, outputs={"y": index}, ladder=ladder)
        for index, (axis, ladder) in enumerate({"batch": [1, 2, 4], "length": [16, 64]}.items())
    ]
    tensors = [
        model_pb2.TensorSpec(name=name, dtype=inference_pb2.DATA_TYPE_FP32, shape=[-1, -1])
        for name in ("x", "y")
    ]
    return model_pb2.Model(
        name=name,
        family="function",
        kind=model_pb2.MODEL_KIND_FUNCTION,
        dtype="float32",
        weight_bytes=1_000_000,
        call=model_pb2.CallSpec(
            inputs=tensors[:1], outputs=tensors[1:], batch=axes[0], axes=axes[1:], compiled=True
        ),
    )


def describe_encoder(name: str) -> model_pb2.Model:
    """A text encoder that knows `VOCAB_SIZE` tokens and reads up to `MAX_LENGTH`, with a name."""
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    tensors = [
        model_pb2.TensorSpec(name=tensor, dtype=inference_pb2.DATA_TYPE_INT32, shape=[-1, -1])
        for tensor in inputs
    ]
    embedding = model_pb2.TensorSpec(
        name="embedding", dtype=inference_pb2.DATA_TYPE_FP32, shape=[-1, 2]
    )
    return model_pb2.Model(
        name=name,
        family="bert",
        kind=model_pb2.MODEL_KIND_EMBEDDER,
        vocab_size=VOCAB_SIZE,
        token_types=2,
        max_length=MAX_LENGTH,
        dtype="float32",
        weight_bytes=1_000_000,
        call=model_pb2.CallSpec(
            inputs=tensors,
            outputs=[embedding],
            batch=model_pb2.Axis(
                name="batch",
                inputs=dict.fromkeys(inputs, 0),
                outputs={"embedding": 0},
                ladder=[1, 2, 4],
            ),
            axes=[
                model_pb2.Axis(
                    name="length", inputs=dict.fromkeys(inputs, 1), ladder=[16, MAX_LENGTH]
                )
            ],
            compiled=True,
        ),
    )
