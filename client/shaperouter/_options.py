"""The options of a generation, as keyword arguments."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class GenerationOptions(TypedDict, total=False):
    """How to generate: keyword arguments of ``generate`` and ``stream``.

    Names and meanings are those of Transformers' ``generate``. Left out or None, an option is at
    its default: the checkpoint's, as ``Model.default_options`` tells it, or else the one in
    brackets. The service checks the limits; no value of any option compiles a graph, but for
    `num_beams`, which chooses the lane.

    Attributes:
        max_new_tokens: Most tokens to generate; at least 1. [64, or what the model's length leaves]
        min_new_tokens: No end token before this many; from 0 to `max_new_tokens`. [0]
        eos_token_ids: Tokens that end the generation; at most 8.
        stop: A string, or several, that end a sequence when they appear in its new text, which
            ends before them; at most 16, each from 1 to 256 characters. Not with beams. [none]
        do_sample: True samples from the distribution, False takes the likeliest token. [True when
            one of the next five is given, else False]
        temperature: Divides the logits before sampling; from 1e-6 to 1e6. [1]
        top_k: Samples among this many likeliest tokens; 0 is all. [50]
        top_p: Samples among the fewest likeliest tokens whose probabilities sum to this; above 0,
            at most 1, which is all. [1]
        min_p: Samples among tokens at least this share as probable as the likeliest; from 0, which
            is all, to 1. [0]
        typical_p: Samples among the most typical tokens whose probabilities sum to this; above 0,
            at most 1, which is all. [1]
        seed: Seed of the randomness, from 0 to 2^63 - 1. [chosen by the service and told in the
            result]
        num_beams: Hypotheses that beam search keeps; 1 is no beam search. [1]
        length_penalty: Exponent of the length that divides a hypothesis' score; from -10 to 10.
            Needs beams. [1]
        early_stopping: When beam search stops: True as soon as `num_beams` hypotheses have ended;
            False when the best open one, scored at its present length, is no better than they are;
            "never" when no open one can become better. Needs beams. [False]
        num_return_sequences: Sequences to return; at most `num_beams` with beams, 16 with sampling.
            [1]
        repetition_penalty: Divides positive and multiplies negative logits of tokens that are there
            already; from 1e-3 to 1e3. [1]
        no_repeat_ngram_size: No run of this many tokens comes twice; 0 is no limit. [0]
        logit_bias: Numbers from -1e4 to 1e4 by token id, which are added to the logits. With
            `bad_words` at most 256. [none]
        bad_words: What is never generated: each a text, which the service tokenizes as it is (in
            mid-sentence a word usually begins with a space), or token ids; at most 8 tokens each.
            [none]
        logprobs: Return the log-probability of each new token, and with a number above 0 those of
            that many likeliest tokens besides; at most 20, and 0 with beams. [none]
        echo: Begin text and token ids with the prompt. [False]
    """

    max_new_tokens: int | None
    min_new_tokens: int | None
    eos_token_ids: Sequence[int] | None
    stop: str | Sequence[str] | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    seed: int | None
    num_beams: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    num_return_sequences: int | None
    repetition_penalty: float | None
    no_repeat_ngram_size: int | None
    logit_bias: Mapping[int, float] | None
    bad_words: Sequence[str | Sequence[int]] | None
    logprobs: int | None
    echo: bool | None
