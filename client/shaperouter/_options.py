"""The options of a generation, as keyword arguments."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class GenerationOptions(TypedDict, total=False):
    """How to generate: keyword arguments of ``generate`` and ``stream``.

    Names and meanings are those of Transformers' ``generate``. An option that is left out or None
    has its default: the checkpoint's, as in ``Model.default_options``, or the one in brackets. The
    service checks the limits. No value of an option compiles a graph; only `num_beams` chooses
    another lane.

    Attributes:
        max_new_tokens: Maximum number of tokens to generate; at least 1. [64, or what the model's
            length leaves]
        min_new_tokens: Minimum number of new tokens before an end token; from 0 to
            `max_new_tokens`. [0]
        eos_token_ids: Tokens that end the generation; at most 8.
        stop: One or several texts that end a sequence when they appear in its new text; at most 16,
            each from 1 to 256 characters. The returned text ends before them. With beam search, one
            finishes a hypothesis. [none]
        do_sample: True samples from the distribution; False takes the likeliest token. [True if one
            of the next five options is given, otherwise False]
        temperature: Divides the logits before sampling; from 1e-6 to 1e6. [1]
        top_k: Samples only among this many likeliest tokens; 0 means all. [50]
        top_p: Samples only among the smallest set of likeliest tokens whose probabilities sum to
            this value; above 0, and at most 1, which means all. [1]
        min_p: Samples only among tokens whose probability is at least this fraction of the
            likeliest token's; from 0, which means all, to 1. [0]
        typical_p: Samples only among the most typical tokens whose probabilities sum to this value;
            above 0, and at most 1, which means all. [1]
        seed: Seed of the random numbers, from 0 to 2^63 - 1. [chosen by the service and returned in
            the result]
        num_beams: Number of hypotheses that beam search keeps; 1 means no beam search. [1]
        length_penalty: A hypothesis' score is divided by its length to the power of this exponent;
            from -10 to 10. Needs beam search. [1]
        early_stopping: When beam search stops. True: as soon as `num_beams` hypotheses have ended.
            False: when the best open one, scored at its present length, is no better than the ended
            ones. "never": when no open one can become better than them. Needs beam search. [False]
        num_return_sequences: Number of sequences to return; at most `num_beams` with beam search,
            16 with sampling. [1]
        repetition_penalty: Divides the positive and multiplies the negative logits of tokens that
            already occur; from 1e-3 to 1e3. [1]
        no_repeat_ngram_size: No sequence of this many tokens occurs twice; 0 means no limit. [0]
        logit_bias: Numbers from -1e4 to 1e4 to add to the logits, by token id. Together with
            `bad_words`, at most 256. [none]
        bad_words: Texts or token ids that are never generated; at most 8 tokens each. The service
            tokenizes a text unchanged (in mid-sentence a word usually begins with a space). [none]
        logprobs: Returns the log-probability of each new token. A number above 0 also returns those
            of that many likeliest tokens; at most 20, and 0 with beam search. [none]
        echo: Begins the returned text and token ids with the prompt. [False]
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
