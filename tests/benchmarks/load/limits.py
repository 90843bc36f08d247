"""Time limit of a useful answer, for goodput.

The limit depends on the request, not on the contestant: five times what the fastest contestant
takes for a lone request of its class with few new tokens, plus 0.1 s for each further token. Ten
tokens per second is faster than people read.
"""

import statistics
from collections.abc import Mapping, Sequence

from .traffic import BEAMS, LONGEST_PROMPT, Request, plain_request

FACTOR = 5.0
FEW_TOKENS = 8
TOKEN_SECONDS = 0.1
PROMPTS = (128, LONGEST_PROMPT)
# Requests of each class; the first one may compile, and is not counted.
REPEATS = 3

CLASSES = [(beams, prompt) for beams in BEAMS for prompt in PROMPTS]

# Seconds of requests without others, by contestant and class.
Unloaded = Mapping[str, Mapping[str, Sequence[float]]]


def class_name(beams: int, prompt: int) -> str:
    """The class of requests with these numbers of beams and prompt tokens."""
    longest = next(length for length in PROMPTS if prompt <= length)
    return f"beams {beams}, prompt to {longest}"


def class_requests(beams: int, prompt: int) -> list[Request]:
    """The requests that measure a class, one after the other."""
    request = plain_request(prompt=prompt, new_tokens=FEW_TOKENS, beams=beams)
    return [request] * (1 + REPEATS)


def limit(unloaded: Unloaded, *, beams: int, prompt: int, new_tokens: int) -> float:
    """The time limit of a request, in seconds."""
    times = [classes.get(class_name(beams, prompt)) for classes in unloaded.values()]
    fastest = min(statistics.median(seconds) for seconds in times if seconds)
    return FACTOR * fastest + TOKEN_SECONDS * max(0, new_tokens - FEW_TOKENS)
