"""Functions to serve in tests, as SavedModels: small ones of every kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FLOAT, INT, BOOL = tf.float32, tf.int32, tf.bool


@dataclass(frozen=True, kw_only=True)
class TestFunction:
    """A function and what the trial should find.

    Attributes:
        call: The function, of tensors by name.
        inputs: Shape and type of each input.
        exact: Axes that must lose their ladders.
        settings: Content of shaperouter.toml.
    """

    __test__ = False

    call: Callable[..., Mapping[str, tf.Tensor]]
    inputs: Mapping[str, tuple[Sequence[int | None], tf.DType]]
    exact: Sequence[str] = ()
    settings: str = ""
    variables: Mapping[str, Any] = field(default_factory=dict)

    def save(self, directory: Path) -> Path:
        """Saves it as a SavedModel."""
        module = tf.Module()
        # The module owns the variables.
        module.variables_ = dict(self.variables)
        specs = {
            name: tf.TensorSpec(shape, dtype, name=name)
            for name, (shape, dtype) in self.inputs.items()
        }
        module.call = tf.function(self.call, autograph=False)
        signature = module.call.get_concrete_function(**specs)
        tf.saved_model.save(module, str(directory), signatures={"serving_default": signature})
        settings = directory / "shaperouter.toml"
        settings.write_text(self.settings + self._ladders(), encoding="utf-8")
        return directory

    def _ladders(self) -> str:
        """Ladders with few rungs, for few compilations."""
        ranks = [range(len(shape)) for shape, _ in self.inputs.values()]
        axes = sorted(
            {
                index
                for rank, (shape, _) in zip(ranks, self.inputs.values(), strict=True)
                for index in rank
                if shape[index] is None
            }
        )
        return "".join(
            "[axes.batch]\nladder = [1, 8]\n"
            if index == 0
            else f"[axes.axis{index}]\nladder = [8, 16]\n"
            for index in axes
        )


def _variable(*shape: int) -> tf.Variable:
    values = np.random.default_rng(len(shape)).standard_normal(shape) / np.sqrt(shape[0])
    return tf.Variable(values.astype(np.float32))


def _attention(x: tf.Tensor, mask: tf.Tensor) -> Mapping[str, tf.Tensor]:
    scores = tf.einsum("bse,bte->bst", x, x) + (1 - tf.cast(mask, FLOAT))[:, None] * -1e9
    return {"y": tf.nn.softmax(scores) @ x * tf.cast(mask, FLOAT)[..., None]}


def _functions() -> dict[str, TestFunction]:
    """The functions, by name."""
    w, kernel, table = _variable(6, 4), _variable(3, 6, 4), _variable(50, 8)
    step, state = _variable(6, 5), _variable(5, 5)
    mean, scale = _variable(6), _variable(6)
    return {
        # A sum that nearly cancels has few correct digits, and may be the only value of an answer.
        # A softplus turns it into a number close to ln 2.
        "dense": TestFunction(
            call=lambda x: {"y": tf.nn.softplus(x @ w)},
            inputs={"x": ([None, 6], FLOAT)},
            variables={"w": w},
        ),
        "convolution": TestFunction(
            call=lambda x: {"y": tf.nn.conv1d(x, kernel, 1, "SAME")},
            inputs={"x": ([None, None, 6], FLOAT)},
            variables={"kernel": kernel},
        ),
        "recurrent": TestFunction(
            call=lambda x: {
                "y": tf.transpose(
                    tf.scan(
                        lambda h, each: tf.tanh(each @ step + h @ state),
                        tf.transpose(x, [1, 0, 2]),
                        initializer=tf.zeros([tf.shape(x)[0], 5]),
                    ),
                    [1, 0, 2],
                )
            },
            inputs={"x": ([None, None, 6], FLOAT)},
            variables={"step": step, "state": state},
        ),
        "attention": TestFunction(
            call=_attention,
            inputs={"x": ([None, None, 8], FLOAT), "mask": ([None, None], INT)},
        ),
        "masked_mean": TestFunction(
            call=lambda ids, mask: {
                "embedding": tf.reduce_sum(
                    tf.gather(table, ids) * tf.cast(mask, FLOAT)[..., None], 1
                )
                / tf.reduce_sum(tf.cast(mask, FLOAT), 1, keepdims=True)
            },
            inputs={"ids": ([None, None], INT), "mask": ([None, None], INT)},
            variables={"table": table},
        ),
        # A mean over the padded axis counts the padding.
        "mean": TestFunction(
            call=lambda x: {"y": tf.reduce_mean(x, 1)},
            inputs={"x": ([None, None, 6], FLOAT)},
            exact=["axis1"],
        ),
        "maximum": TestFunction(
            call=lambda x: {"y": tf.reduce_max(tf.nn.relu(x), 1)},
            inputs={"x": ([None, None, 6], FLOAT)},
        ),
        "batch_norm": TestFunction(
            call=lambda x: {"y": (x - mean) * scale},
            inputs={"x": ([None, 6], FLOAT)},
            variables={"mean": mean, "scale": scale},
        ),
        # Padding by zeros changes it only where all values are negative.
        "signed_maximum": TestFunction(
            call=lambda x: {"y": tf.reduce_max(x, 1)},
            inputs={"x": ([None, None], FLOAT)},
            exact=["axis1"],
        ),
        "signed_integers": TestFunction(
            call=lambda x: {"y": tf.reduce_max(x, 1)},
            inputs={"x": ([None, None, 3], INT)},
            exact=["axis1"],
        ),
        # They take another path at other sizes than those in the middle.
        "last_steps": TestFunction(
            call=lambda x: {"y": tf.nn.softplus(tf.reduce_sum(x[:, -8:], 1))},
            inputs={"x": ([None, None], FLOAT)},
            exact=["axis1"],
        ),
        "first_steps": TestFunction(
            call=lambda x: {"y": x[:, :4]},
            inputs={"x": ([None, None], FLOAT)},
            exact=["axis1"],
        ),
        # All calls of a batch would get it.
        "outlier": TestFunction(
            call=lambda x: {"y": x + 1.0, "outlier": tf.reduce_max(tf.where(x > 1e5, x, 0.0))},
            inputs={"x": ([None, 2], FLOAT)},
            exact=["batch"],
        ),
        "matches": TestFunction(
            call=lambda text: {
                "mails": tf.boolean_mask(text, tf.strings.regex_full_match(text, ".*@.*"))
            },
            inputs={"text": ([None], tf.string)},
            settings="jit = false\n",
            exact=["batch"],
        ),
        # As many columns as the longest row of all calls.
        "words": TestFunction(
            call=lambda text: {"words": tf.strings.split(text, ",").to_tensor()},
            inputs={"text": ([None], tf.string)},
            settings="jit = false\n",
            exact=["batch"],
        ),
        "named": TestFunction(
            call=lambda x: {
                "y": x * 2.0,
                "version": tf.constant("v1"),
                "classes": tf.constant(["a", "b"]),
            },
            inputs={"x": ([None, 2], FLOAT)},
            settings="jit = false\n",
        ),
        "brain_float": TestFunction(
            call=lambda x, factor: {"y": x * factor},
            inputs={"x": ([None, 2], tf.bfloat16), "factor": ([], tf.bfloat16)},
        ),
        # Batch normalisation as in training: each row depends on the others.
        "batch_norm_training": TestFunction(
            call=lambda x: {
                "y": (x - tf.reduce_mean(x, 0))
                * tf.math.rsqrt(tf.math.reduce_variance(x, 0) + 1e-3)
            },
            inputs={"x": ([None, 6], FLOAT)},
            exact=["batch"],
        ),
        "many": TestFunction(
            call=lambda a, b, flag: {
                "sum": a + tf.cast(b, FLOAT)[..., None],
                "largest": tf.argmax(a, -1, output_type=INT),
                "positive": tf.logical_and(tf.reduce_any(a > 0, -1), flag),
                "row": tf.reduce_sum(b, -1),
            },
            inputs={
                "a": ([None, None, 3], FLOAT),
                "b": ([None, None], INT),
                "flag": ([None, None], BOOL),
            },
        ),
        "image": TestFunction(
            call=lambda x: {"y": tf.nn.relu(x) * 2},
            inputs={"x": ([None, None, None, 2], FLOAT)},
        ),
        # The trial draws no limit that changes anything.
        "limited": TestFunction(
            call=lambda x, limit: {"y": tf.where(limit > 100.0, x + 1.0, x)},
            inputs={"x": ([None, 3], tf.float32), "limit": ([], tf.float32)},
        ),
        "scalar": TestFunction(
            call=lambda x, factor: {"y": x * factor},
            inputs={"x": ([None, 2], FLOAT), "factor": ([], FLOAT)},
        ),
        "weighted": TestFunction(
            call=lambda x, weights: {"y": tf.nn.softplus(tf.reduce_sum(x * weights, 1))},
            inputs={"x": ([None, None], FLOAT), "weights": ([1, None], FLOAT)},
        ),
        # Only large values count the padding: no trial finds this.
        "rare": TestFunction(
            call=lambda x: {
                "y": tf.where(
                    tf.reduce_max(x) > 1e6,
                    tf.reduce_mean(x, 1),
                    tf.reduce_sum(x, 1),
                )
            },
            inputs={"x": ([None, None], FLOAT)},
        ),
    }


FUNCTIONS = _functions()
