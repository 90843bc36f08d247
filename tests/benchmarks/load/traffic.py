"""Traffic of the load benchmark, drawn from a seed and the same for every contestant.

Lengths of prompts are log-normal, with the long tail of real prompts; half of them are below 64
tokens. Each option has a handful of values, as in applications, rather than any float: this favours
systems that compile or group by options.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

from common.checkpoint import END_TOKEN

MEDIAN_PROMPT, PROMPT_SIGMA, SHORTEST_PROMPT, LONGEST_PROMPT = 64, 1.0, 8, 512
FEWEST_NEW_TOKENS, MOST_NEW_TOKENS = 5, 64
BEAMS, BEAM_SHARES = (1, 2, 4), (0.7, 0.15, 0.15)
# Share of the requests without beam search.
SAMPLED_SHARE = 0.4
TEMPERATURES = (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
TOP_PS = (0.8, 0.9, 0.95, 1.0)
REPETITION_PENALTIES = (1.0, 1.1, 1.2)
CLIENTS = 8

# Numbers that form a seed together.
Seed = Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to send.

    Attributes:
        at: Time to send it, in seconds from the start.
        client: Name of the client.
        token_ids: The prompt.
        options: Fields of GenerationOptions.
    """

    at: float
    client: str
    token_ids: list[int]
    options: dict[str, Any]

    @property
    def beams(self) -> int:
        """Beam width."""
        return int(self.options["num_beams"])

    @property
    def new_tokens(self) -> int:
        """Number of tokens to generate; no end token occurs."""
        return int(self.options["max_new_tokens"])


def open_loop(seed: Seed, *, rate: float, seconds: float) -> list[Request]:
    """Poisson arrivals at `rate` requests per second, for this many seconds."""
    return list(takewhile(lambda request: request.at < seconds, _requests(seed, rate)))


def any_time(seed: Seed, count: int) -> list[Request]:
    """This many requests without times, for closed loops."""
    requests = _requests(seed, 1.0)
    return [next(requests) for _ in range(count)]


def plain_request(*, prompt: int, new_tokens: int, beams: int = 1) -> Request:
    """A request of a given shape, without options."""
    return Request(
        at=0.0,
        client="client-0",
        token_ids=np.random.default_rng(prompt).integers(END_TOKEN, size=prompt).tolist(),
        options={"max_new_tokens": new_tokens, "num_beams": beams},
    )


def _requests(seed: Seed, rate: float) -> Iterator[Request]:
    # Times and requests are drawn separately, so that the rate does not change the requests.
    whens, whats = np.random.default_rng(seed).spawn(2)
    at = 0.0
    while True:
        at += whens.exponential(1 / rate)
        length = np.exp(whats.normal(np.log(MEDIAN_PROMPT), PROMPT_SIGMA))
        prompt = int(np.clip(round(length), SHORTEST_PROMPT, LONGEST_PROMPT))
        yield Request(
            at=at,
            client=f"client-{whats.integers(CLIENTS)}",
            token_ids=whats.integers(END_TOKEN, size=prompt).tolist(),
            options=_options(whats),
        )


def _options(rng: np.random.Generator) -> dict[str, Any]:
    options: dict[str, Any] = {
        "max_new_tokens": int(rng.integers(FEWEST_NEW_TOKENS, MOST_NEW_TOKENS + 1)),
        "num_beams": int(rng.choice(BEAMS, p=BEAM_SHARES)),
    }
    if options["num_beams"] == 1 and rng.random() < SAMPLED_SHARE:
        options |= {
            "do_sample": True,
            "temperature": float(rng.choice(TEMPERATURES)),
            "top_p": float(rng.choice(TOP_PS)),
            "repetition_penalty": float(rng.choice(REPETITION_PENALTIES)),
            "seed": int(rng.integers(2**31)),
        }
    return options
