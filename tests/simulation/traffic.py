"""Simulated traffic, drawn from a seed.

Lengths of prompts are log-normal, with the long tail of real prompts, as in the load benchmark.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

SHORTEST_PROMPT = 4
# Prompts begin in one of so many ways, for routing by prefix; the first ways are the commonest.
PREFIXES = 64


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request.

    Attributes:
        at: When it is sent, in seconds.
        prompt: Tokens of its prompt.
        new_tokens: Maximum tokens to generate.
        makes: Tokens that it generates before its end token.
        prefix: How its prompt begins.
    """

    at: float
    prompt: int
    new_tokens: int
    makes: int
    prefix: int = 0


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A kind of traffic.

    Attributes:
        rate: Mean requests per second, or several rates in equal times, one after another.
        seconds: How long it lasts.
        median_prompt: Half of the prompts are shorter, in tokens.
        longest_prompt: Longer prompts are cut to this many tokens.
        sigma: Spread of the logarithm of the lengths; 0 for equal prompts.
        new_tokens: Smallest and largest number of tokens that requests allow.
        makes: Share of these that is made.
    """

    rate: float | tuple[float, ...]
    seconds: float
    median_prompt: int = 64
    longest_prompt: int = 256
    sigma: float = 1.0
    new_tokens: tuple[int, int] = (16, 128)
    makes: float = 1.0

    def requests(self, seed: int) -> Iterator[Request]:
        """Poisson arrivals."""
        # Times and requests are drawn apart, so that the rate does not change the requests.
        whens, whats = np.random.default_rng(seed).spawn(2)
        rates = self.rate if isinstance(self.rate, tuple) else (self.rate,)
        at = 0.0
        while True:
            phase = min(len(rates) - 1, int(at / self.seconds * len(rates)))
            at += whens.exponential(1 / rates[phase])
            if at >= self.seconds:
                return
            yield self.one(whats, at)

    def one(self, rng: np.random.Generator, at: float = 0.0) -> Request:
        """Draws a request."""
        length = np.exp(rng.normal(np.log(self.median_prompt), self.sigma))
        fewest, most = self.new_tokens
        new_tokens = int(rng.integers(fewest, most + 1))
        return Request(
            at=at,
            prompt=int(np.clip(round(length), SHORTEST_PROMPT, self.longest_prompt)),
            new_tokens=new_tokens,
            makes=max(1, round(self.makes * new_tokens)),
            prefix=min(PREFIXES, int(rng.zipf(1.5))),
        )
