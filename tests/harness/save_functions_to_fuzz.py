"""Saves functions for mutated calls: `python -m harness.save_functions_to_fuzz DIRECTORY`.

It runs in a process of its own, so that tests of the service need no TensorFlow. The functions are
`many`, of numbers, and `classify` and `regress`, of serialized examples with three features.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf

from harness.functions import FLOAT, FUNCTIONS, TestFunction

_BY_TENSORFLOW = "jit = false\n"


def main() -> None:
    """Saves them, each in a directory of its name."""
    examples = {"examples": ([None], tf.string)}
    functions = {
        "many": FUNCTIONS["many"],
        "classify": TestFunction(call=_classify, inputs=examples, settings=_BY_TENSORFLOW),
        "regress": TestFunction(call=_regress, inputs=examples, settings=_BY_TENSORFLOW),
    }
    for name, function in functions.items():
        function.save(Path(sys.argv[1]) / name)


def _classify(examples: tf.Tensor) -> Mapping[str, tf.Tensor]:
    scores = tf.nn.softmax(_features(examples))
    classes = tf.strings.as_string(tf.argsort(scores))
    return {"classes": classes, "scores": scores}


def _regress(examples: tf.Tensor) -> Mapping[str, tf.Tensor]:
    return {"outputs": tf.reduce_sum(_features(examples), 1)}


def _features(examples: tf.Tensor) -> tf.Tensor:
    schema = {"x": tf.io.FixedLenFeature([3], FLOAT, [0.0, 1.0, 2.0])}
    return tf.io.parse_example(examples, schema)["x"]


if __name__ == "__main__":
    main()
