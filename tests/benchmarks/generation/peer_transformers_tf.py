"""Transformers on TensorFlow, eager or compiled by XLA as its documentation shows."""

import argparse
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from safetensors.numpy import load_file
from transformers import GPT2Config, TFGPT2LMHeadModel
from transformers.modeling_tf_pytorch_utils import load_pytorch_state_dict_in_tf2_model

from common.protocol import arguments

from .contestant import Contestant, Generated, serve


class TransformersTF(Contestant):
    """`generate`, and with XLA `tf.function(generate, jit_compile=True)`."""

    packages = ("transformers", "tensorflow", "tf_keras")

    def __init__(self, model: Path, *, xla: bool) -> None:
        # from_pretrained of this release fails on any safetensors file made with PyTorch's names
        # (it iterates over a safe_open), so the same is done by hand.
        self._model = load_pytorch_state_dict_in_tf2_model(
            TFGPT2LMHeadModel(GPT2Config.from_pretrained(model)),
            load_file(model / "model.safetensors"),
        )
        self._compiled = tf.function(self._model.generate, jit_compile=True) if xla else None
        # It traces and compiles within a call, so only the time of whole calls is known.
        self._traced: list[dict[str, Any]] = []

    def generate(
        self, prompts: Sequence[Sequence[int]], new_tokens: int, options: Mapping[str, Any]
    ) -> Generated:
        input_ids = tf.constant(prompts)
        keywords = {
            "attention_mask": tf.ones_like(input_ids),
            "max_new_tokens": new_tokens,
            **options,
        }
        if self._compiled is None:
            output = self._model.generate(input_ids, **keywords)
        else:
            traces, started = self._compiled.experimental_get_tracing_count(), time.perf_counter()
            output = self._compiled(input_ids, **keywords)
            traces = self._compiled.experimental_get_tracing_count() - traces
            if traces:
                signature = f"{len(prompts)}x{len(prompts[0])} {dict(options)}"
                seconds = time.perf_counter() - started
                self._traced.append(
                    {"signature": signature, "traces": traces, "call_seconds": seconds}
                )
        return Generated(token_ids=output[:, input_ids.shape[1] :].numpy().tolist())

    def graphs(self) -> list[dict[str, Any]]:
        return self._traced


@contextmanager
def load() -> Iterator[Contestant]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--xla", action="store_true", help="compile, instead of running eagerly")
    given = arguments(parser)
    tf.config.threading.set_intra_op_parallelism_threads(given.threads)
    yield TransformersTF(given.model, xla=given.xla)


if __name__ == "__main__":
    serve(load())
