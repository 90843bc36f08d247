"""Transformers on TensorFlow behind gRPC as in its guide to XLA, one request at a time.

It is set up as a competent reader of the guide would do it:

- `tf.function(model.generate, jit_compile=True)`, made once.
- Prompts are padded at the start to multiples of 64, with an attention mask: 8 lengths for prompts
  of up to 512 tokens. Multiples of 8, as in the guide's example, would be 64 compilations.
- `generate` takes options as Python values, so each combination of length, `num_beams`,
  `max_new_tokens`, `do_sample`, `temperature`, `top_p` and `repetition_penalty` is a trace and a
  compilation; its processors refuse tensors ("has to be a strictly positive float"). The seed alone
  may be a tensor, and is one.
- `max_new_tokens` is rounded up to 32 or 64 and the surplus is cut off, so that there are 2 graphs
  and not 60. With beam search the answer may differ from the requested one; the benchmark compares
  only time.
- One request at a time, in order of arrival: a model has one device. Calls whose deadline has
  passed while they waited are skipped.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import grpc
import tensorflow as tf
from safetensors.numpy import load_file
from transformers import GPT2Config, TFGPT2LMHeadModel
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from common.protocol import arguments
from shaperouter.v1 import generation_pb2

from .server import Server, answering, serve

PAD_TO_MULTIPLE_OF = 64
NEW_TOKENS = (32, 64)
STATIC_OPTIONS = ("do_sample", "temperature", "top_p", "repetition_penalty")


class TransformersServer(Server):
    """The compiled `generate`."""

    packages = ("transformers", "tensorflow", "tf_keras", "grpcio")

    def __init__(self, model: Path) -> None:
        # from_pretrained of this release fails on any safetensors file made with PyTorch's names
        # (it iterates over a safe_open), so the same is done by hand.
        self._model = load_pytorch_state_dict_in_tf2_model(
            TFGPT2LMHeadModel(GPT2Config.from_pretrained(model)),
            load_file(model / "model.safetensors"),
        )
        self._generate = tf.function(self._model.generate, jit_compile=True)
        self.address = ""

    def generate(
        self, request: generation_pb2.GenerateRequest, _: grpc.ServicerContext
    ) -> Sequence[int]:
        """Continues a prompt."""
        options, prompt = request.options, list(request.token_ids.ids)
        padding = -len(prompt) % PAD_TO_MULTIPLE_OF
        input_ids = tf.constant([[0] * padding + prompt])
        keywords = {
            name: getattr(options, name) for name in STATIC_OPTIONS if options.HasField(name)
        }
        if options.do_sample:
            keywords["seed"] = tf.constant([options.seed, 0])
        output = self._generate(
            input_ids,
            attention_mask=tf.constant([[0] * padding + [1] * len(prompt)]),
            max_new_tokens=next(most for most in NEW_TOKENS if most >= options.max_new_tokens),
            num_beams=options.num_beams,
            **keywords,
        )
        made: list[int] = output[0, input_ids.shape[1] :].numpy().tolist()
        return made[: options.max_new_tokens]

    def counters(self) -> dict[str, float]:
        return {"graph_traces_total": self._generate.experimental_get_tracing_count()}


@contextmanager
def load() -> Iterator[Server]:
    given = arguments()
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    server = TransformersServer(given.model)
    with answering(server.generate, threads=1) as server.address:
        yield server


if __name__ == "__main__":
    serve(load())
