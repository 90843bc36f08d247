"""Comparison of decoding on a GPU with the expected results from a CPU."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from executable import Arrays
from manifest import DECODE, FIRST, Manifest

# Maximum differences of float32 values between devices: of log-probabilities, and of caches.
TOLERANCE = 1e-3


def probe(caches: Arrays, places: Sequence[int]) -> np.ndarray:
    """Selects the same entries of the caches as export.py does."""
    picked = [
        cache[0, 0][:, np.asarray(places)].astype(jnp.float32)
        for _, cache in sorted(caches.items(), key=lambda item: int(item[0].split("/")[1]))
    ]
    return np.stack(picked)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The differences of results from the CPU's.

    Attributes:
        tokens: Number of generated tokens of all rows and beams.
        equal_tokens: Number of tokens equal to the CPU's, up to the row's first difference.
        logprob_difference: The largest of the equal tokens' log-probabilities; of beam search, of
            the open hypotheses' scores.
        cache_difference: The largest at some positions of the first row's caches.
        closest: How much likelier the likeliest token was than the next, where that was closest;
            None with beam search.
    """

    tokens: int
    equal_tokens: int
    logprob_difference: float
    cache_difference: float
    closest: float | None

    @property
    def same(self) -> bool:
        """Whether the results are equal except for rounding."""
        return (
            self.equal_tokens == self.tokens
            and max(self.logprob_difference, self.cache_difference) <= TOLERANCE
        )


def compare(found: Arrays, expected: Arrays, manifest: Manifest) -> Comparison:
    """Compares results of the first step and of the others, by name, as export.py names them."""
    state = f"{DECODE}/state"
    prompt_lengths = expected[f"{state}/prompt_lengths"]
    rows, beams, _ = expected[f"{state}/tokens"].shape
    # The first token takes a separate step.
    made = manifest.steps + 1
    places = prompt_lengths[:, np.newaxis] + np.arange(made)
    new, old = (
        np.take_along_axis(arrays[f"{state}/tokens"], places[:, np.newaxis], axis=2)
        for arrays in (found, expected)
    )  # [R, B, made]
    agreeing = np.logical_and.accumulate(new == old, axis=-1)
    closest = None
    if beams == 1:

        def join(arrays: Arrays, field: str) -> np.ndarray:
            first, others = (arrays[f"{part}/logprobs/{field}"] for part in (FIRST, DECODE))
            return np.concatenate([first[:, :1], others[:, : manifest.steps]], axis=1)

        differences = np.abs(join(found, "chosen") - join(expected, "chosen"))[agreeing[:, 0]]
        top = join(expected, "top")
        closest = float((top[..., 0] - top[..., 1]).min())
    else:
        scores = f"{state}/beams/scores"
        differences = np.abs(found[scores] - expected[scores])[agreeing[..., -1]]
    caches = np.abs(found[f"{DECODE}/caches"] - expected[f"{DECODE}/caches"])
    if not agreeing[0].all():
        # Positions of other tokens cannot be compared.
        caches = caches[:, :, :1]
    return Comparison(
        tokens=rows * beams * made,
        equal_tokens=int(agreeing.sum()),
        logprob_difference=float(differences.max(initial=0)),
        cache_difference=float(caches.max()),
        closest=closest,
    )
