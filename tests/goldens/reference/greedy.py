"""Greedy continuations without options, except for their maximum length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from transformers import PreTrainedTokenizerBase

from .model import (
    MAX_ATTEMPTS,
    Continuation,
    GoldenError,
    Reference,
    SourceReference,
    is_diverse,
    is_safe,
    random_prompt,
)

# Lengths around powers of two and multiples of 8 and 24, where the rungs are.
PROMPT_LENGTHS = (
    *(1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33),
    *(47, 48, 49, 63, 64, 65, 72, 95, 96, 97),
)
# Lengths up to this one get two prompts, because most rungs are there.
LAST_DOUBLED_LENGTH = 33
MAX_NEW_TOKENS = 32
# Each end token must end at least this share of a tiny checkpoint's cases.
MIN_EOS_SHARE = 0.1
# Minimum number of cases that reach the last position of the context.
MIN_FULL_CASES = 2
# Lengths of decoder prompts after their start: around pieces of 8 and around rungs.
DECODER_PROMPT_LENGTHS = (1, 2, 6, 7, 8, 9, 15, 16, 30, 47, 63)


# --- Random prompts, for checkpoints without a tokenizer ------------------------------------------


def random_continuation(
    reference: Reference,
    seed: Iterable[int],
    length: int,
    max_new_tokens: int,
    decoder_length: int = 0,
) -> Continuation:
    """The continuation of the first random prompt of this seed that is safe to compare with."""
    for attempt in range(MAX_ATTEMPTS):
        prompt = random_prompt(reference, (*seed, attempt), length)
        decoder_prompt = random_prompt(reference, (*seed, attempt, 1), decoder_length)
        try:
            continuation = reference.continue_greedily(prompt, max_new_tokens, decoder_prompt)
        except GoldenError:
            continue
        if is_safe(continuation) and is_diverse(continuation.token_ids):
            return continuation
    raise GoldenError(f"no safe prompt of {length} tokens in {MAX_ATTEMPTS} attempts")


def random_cases(reference: Reference, seed: int) -> Iterator[tuple[str, Continuation]]:
    """Name and continuation of each case of a checkpoint without a tokenizer."""
    max_length = reference.max_length
    if isinstance(reference, SourceReference):
        yield from source_cases(reference, seed)
        return
    lengths = sorted({n for n in PROMPT_LENGTHS if n < max_length} | {max_length - 1})
    plan = [(n, v) for n in lengths for v in range(2 if n <= LAST_DOUBLED_LENGTH else 1)]
    eos_cases = []
    for index, (length, variant) in enumerate(plan):
        room = max_length - length
        # 11 and 32 share no factor, so the limits take all values from 1 to 32, in a mixed order.
        # A prompt near the end of the context gets all the room, to reach the last position.
        limit = 1 + index * 11 % MAX_NEW_TOKENS if room > MAX_NEW_TOKENS else room
        continuation = random_continuation(reference, (seed, length, variant), length, limit)
        yield f"p{length}-{'ab'[variant]}", continuation
        if continuation.finish_reason == "eos" and len(continuation.token_ids) > 1:
            eos_cases.append((f"p{length}-{'ab'[variant]}", continuation))

    # An end token at the limit gives the reason `eos`; a limit of one token less gives `length`.
    for name, case in eos_cases[:: max(1, len(eos_cases) // 2)][:2]:
        limit = len(case.token_ids)
        yield f"{name}-eos-at-limit", reference.continue_greedily(case.prompt, limit)
        yield f"{name}-eos-after-limit", reference.continue_greedily(case.prompt, limit - 1)


def source_cases(reference: SourceReference, seed: int) -> Iterator[tuple[str, Continuation]]:
    """Cases of a model with an encoder: sources, and then decoder prompts, of all lengths."""
    max_length = reference.max_length
    lengths = sorted({n for n in PROMPT_LENGTHS if n < max_length} | {max_length - 1, max_length})
    for index, length in enumerate(lengths):
        limit = 1 + index * 11 % MAX_NEW_TOKENS
        yield f"s{length}", random_continuation(reference, (seed, length), length, limit)
    edges = [max_length - 1 - room for room in (8, 4, 2, 1)]
    for index, length in enumerate([*DECODER_PROMPT_LENGTHS, *edges]):
        source, room = 1 + index * 23 % max_length, max_length - 1 - length
        limit = min(room, MAX_NEW_TOKENS)
        draw = (seed, length, 1)
        yield f"d{length}", random_continuation(reference, draw, source, limit, length)


def check_random_cases(reference: Reference, cases: list[Continuation]) -> None:
    """Raise a GoldenError if the cases of a tiny checkpoint leave too much untested."""
    ends = Counter(case.token_ids[-1] for case in cases if case.finish_reason == "eos")
    for token in reference.eos_token_ids:
        if ends[token] < MIN_EOS_SHARE * len(cases):
            raise GoldenError(f"token {token} ends only {ends[token]} of {len(cases)} cases")
    full = sum(case.length == reference.max_length for case in cases)
    if full < MIN_FULL_CASES:
        raise GoldenError(f"only {full} cases reach the last position")


# --- Text prompts, for checkpoints with a tokenizer -----------------------------------------------

PROSE = (
    "The lighthouse keeper wrote down the weather every evening. Some days there was little to "
    "say: a light wind, a few clouds, two ships far out. On others he filled a page. He wrote of "
    "the storm that took the small boat, of the fog that stayed for nine days, and of the morning "
    "when the sea was so still that he could hear people talking on the other shore. Nobody had "
    "asked him to keep these notes. He kept them because a day that is written down can be "
    "compared with another, and what can be compared can be understood. "
)
# Name, maximum number of new tokens, prompt.
TEXT_PROMPTS = (
    ("word", 32, "TensorFlow is"),
    ("letter", 8, "A"),
    ("newline", 16, "\n"),
    ("sentence", 32, "Once upon a time there was a small house at the edge of the forest. In it"),
    ("question", 1, "Q: How many days are there in a week?\nA:"),
    ("leading-space", 12, "  indented by two spaces, and then"),
    ("digits", 24, "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,"),
    ("accents", 16, "Die Brücke über den Fluß führt nach Übersee; le café où l'été s'achève"),
    ("scripts", 24, "東京は日本の首都です。Москва — столица России. "),
    # Characters of many code points: zero-width joiners, a flag, a skin tone.
    ("emoji", 16, "Good morning 👩‍👩‍👧‍👦 🇫🇷 👍🏽 and welcome to"),
    ("code", 31, "def mean(values):\n    total = 0.0\n    for value in values:\n        total +="),
    ("paragraph", 32, PROSE.strip()),
)
# PROSE has 101 words, so with any vocabulary it has more tokens than this.
MIN_PROSE_TOKENS = 64
# Lengths of further prompts, cut from PROSE: on rungs that no other prompt uses.
PROSE_PROMPT_LENGTHS = (100, 200, 333)
# Positions that the prompts at the end of the context leave free.
EDGE_ROOM = (1, 16)


def cut_to_length(tokenizer: PreTrainedTokenizerBase, text: str, length: int) -> str | None:
    """The longest beginning of ``text`` that encodes to exactly ``length`` tokens, if any."""
    low, high = 0, len(text)
    # A longer text usually has more tokens, but sometimes a longer token replaces several. So the
    # search continues a little below.
    while low < high:
        middle = (low + high + 1) // 2
        if len(tokenizer.encode(text[:middle])) <= length:
            low = middle
        else:
            high = middle - 1
    for end in range(low, max(0, low - 32), -1):
        if len(tokenizer.encode(text[:end])) == length:
            return text[:end]
    return None


def safe_text_continuation(
    reference: Reference, prompt: list[int], limit: int
) -> Continuation | None:
    """The safe continuation with the largest limit up to ``limit``, if there is one.

    A random prompt can be drawn again, but a text is given, so its limit is reduced instead.
    """
    for shorter in range(limit, 0, -1):
        try:
            continuation = reference.continue_greedily(prompt, shorter)
        except GoldenError:
            continue
        if is_safe(continuation):
            return continuation
    return None


def text_cases(
    reference: Reference, tokenizer: PreTrainedTokenizerBase
) -> Iterator[tuple[str, str, Continuation]]:
    """Name, prompt's text and continuation of each case of a checkpoint with a tokenizer."""
    max_length = reference.max_length
    prose = (1 + max_length // MIN_PROSE_TOKENS) * PROSE
    prompts = list(TEXT_PROMPTS)
    for length in PROSE_PROMPT_LENGTHS:
        text = cut_to_length(tokenizer, prose, min(length, max_length - MAX_NEW_TOKENS))
        if text is None:
            raise GoldenError(f"the prose cannot be cut to {length} tokens")
        prompts.append((f"prose-{length}", MAX_NEW_TOKENS, text))
    for name, limit, text in prompts:
        prompt: list[int] = tokenizer.encode(text)
        room = max_length - len(prompt)
        if room < 1:
            raise GoldenError(f"prompt {name!r} has {len(prompt)} tokens of {max_length}")
        continuation = safe_text_continuation(reference, prompt, min(limit, room))
        if continuation is None:
            raise GoldenError(f"prompt {name!r} has no safe continuation")
        yield name, text, continuation

    for room in EDGE_ROOM:
        # Try the prose from each word on, until a continuation reaches the last position.
        words = PROSE.split(" ")
        for start in range(len(words)):
            source = " ".join(words[start:]) + prose
            edge_text = cut_to_length(tokenizer, source, max_length - room)
            if edge_text is None:
                continue
            edge = safe_text_continuation(reference, tokenizer.encode(edge_text), room)
            if edge is not None and edge.length == max_length:
                yield f"edge-{room}", edge_text, edge
                break
        else:
            raise GoldenError(f"no safe prompt of max_length - {room} tokens")
