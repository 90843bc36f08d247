"""The model that fake workers serve."""

from harness.default_options import default_options
from shaperouter.v1 import model_pb2

VOCAB_SIZE = 320
MAX_LENGTH, SLOTS = 64, 4


def describe_model(name: str) -> model_pb2.Model:
    """The model of fake workers, with a name."""
    return model_pb2.Model(
        name=name,
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
