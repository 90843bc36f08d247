"""Saves a function for tests of the real service: `python -m harness.save_function DIRECTORY`.

It runs in a process of its own, so that tests of the service need no TensorFlow. The function is
`scores = softmax(features @ matrix)` for any batch of 3 features.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

MATRIX = np.arange(6, dtype=np.float32).reshape(3, 2)


def main() -> None:
    """Saves it."""
    module = tf.Module()
    module.matrix = tf.Variable(MATRIX)
    features = tf.TensorSpec([None, 3], tf.float32, name="features")

    @tf.function(input_signature=[features], autograph=False)
    def classify(features: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": tf.nn.softmax(features @ module.matrix)}

    tf.saved_model.save(module, str(Path(sys.argv[1])), signatures=classify)


if __name__ == "__main__":
    main()
