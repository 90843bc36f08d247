"""Saves a function that returns `2 x`, and never for large inputs: `python -m chaos.poison DIR`.

It runs in a process of its own, as only this needs TensorFlow.
"""

import sys
from pathlib import Path

import tensorflow as tf

from chaos.poison_input import LIMIT


def main() -> None:
    """Saves it."""
    module = tf.Module()
    x = tf.TensorSpec([None], tf.float32, name="x")

    @tf.function(input_signature=[x], autograph=False)
    def double(x: tf.Tensor) -> dict[str, tf.Tensor]:
        (y,) = tf.while_loop(lambda y: tf.reduce_any(x + 0 * y > LIMIT), lambda y: (-y,), (2 * x,))
        return {"y": y}

    directory = Path(sys.argv[1])
    tf.saved_model.save(module, str(directory), signatures=double)
    (directory / "shaperouter.toml").write_text("[axes.batch]\nladder = [1, 4]\n")


if __name__ == "__main__":
    main()
