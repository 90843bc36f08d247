"""The table of all generation options: one row for each field of `GenerationOptions`.

Validation, the checkpoint's defaults, messages to workers, tensors on the device, the client with
its command, and the tables of the documentation derive from it. CONTRIBUTING.md lists what an
option needs besides its row.

Names, meanings and defaults are those of Transformers' `generate`.
"""

from functools import partial

from shaperouter_service.generation import limits
from shaperouter_service.generation.option import (
    INT64_MAX,
    NO_TOKEN,
    EarlyStopping,
    Group,
    Kind,
    ModelLimit,
    Needs,
    Option,
    Range,
)

_length = partial(Option, group=Group.LENGTH)
_sampling = partial(Option, group=Group.SAMPLING)
_cutoff = partial(_sampling, kind=Kind.NUMBER, needs=Needs.SAMPLING, means="all", metavar="P")
_beams = partial(Option, group=Group.BEAMS)
_penalty = partial(Option, group=Group.PENALTIES)
_structure = partial(
    Option, group=Group.STRUCTURE, default_help="any text", checkpoint="", on_device=False
)
_result = partial(Option, group=Group.RESULT)

_OPTIONS = (
    _length(
        name="max_new_tokens",
        kind=Kind.COUNT,
        help="Maximum number of tokens to generate. 0 only scores the prompt: needs "
        "`prompt_logprobs`.",
        range=Range(low=0),
        neutral=1,
        # Transformers' 20 end in mid-sentence.
        default=64,
        default_help="64, at least 1024 in a conversation, "
        "but no more than the length of the model leaves",
    ),
    _length(
        name="min_new_tokens",
        kind=Kind.COUNT,
        help="Minimum number of new tokens before an end token; at most `max_new_tokens`.",
        range=Range(low=0),
        neutral=0,
    ),
    _length(
        name="eos_token_ids",
        kind=Kind.TOKENS,
        help="Tokens that end the generation.",
        max_items=limits.MAX_EOS_TOKENS,
        neutral=(),
        default_help="none",
        checkpoint="eos_token_id",
        flag="--eos-token-id",
    ),
    _length(
        name="stop",
        kind=Kind.TEXTS,
        help="Texts that end a sequence when they appear in its new text. The returned text ends "
        "before them. With beam search, a stop text finishes the hypothesis that contains it.",
        max_items=limits.MAX_STOP,
        limits=f"each from 1 to {limits.MAX_STOP_CHARACTERS} characters",
        default_help="none",
        checkpoint="",
        on_device=False,
    ),
    _sampling(
        name="do_sample",
        kind=Kind.FLAG,
        help="True samples from the distribution; False takes the likeliest token.",
        neutral=False,
        default_help="True if an option that implies it is given, else the model's, or False",
        command_help="Samples, or always takes the likeliest token.",
        flag="--sample/--greedy",
    ),
    _sampling(
        name="temperature",
        kind=Kind.NUMBER,
        help="Divides the logits before sampling.",
        range=Range(low=limits.MIN_TEMPERATURE, high=limits.MAX_TEMPERATURE),
        neutral=1.0,
        needs=Needs.SAMPLING,
        hint="for greedy decoding set do_sample to false",
        metavar="T",
    ),
    _sampling(
        name="top_k",
        kind=Kind.COUNT,
        help="Samples only among this many likeliest tokens.",
        range=Range(low=0, high=ModelLimit.VOCABULARY),
        neutral=0,
        means="all",
        default=50,
        needs=Needs.SAMPLING,
        metavar="K",
    ),
    _cutoff(
        name="top_p",
        help="Samples only among the smallest set of likeliest tokens whose probabilities sum to "
        "this value.",
        range=Range(low=0, high=1, above=True),
        neutral=1.0,
    ),
    _cutoff(
        name="min_p",
        help="Samples only among tokens whose probability is at least this fraction of the "
        "likeliest token's.",
        range=Range(low=0, high=1),
        neutral=0.0,
    ),
    _cutoff(
        name="typical_p",
        help="Samples only among the most typical tokens whose probabilities sum to this value.",
        range=Range(low=0, high=1, above=True),
        neutral=1.0,
    ),
    _cutoff(
        name="epsilon_cutoff",
        help="Samples only among tokens whose probability is at least this value.",
        range=Range(low=0, high=1, below=True),
        neutral=0.0,
    ),
    _cutoff(
        name="eta_cutoff",
        help="Samples only among tokens whose probability is at least this value, or less where "
        "the distribution is wide: its square root times exp(-entropy).",
        range=Range(low=0, high=1, below=True),
        neutral=0.0,
    ),
    _sampling(
        name="seed",
        kind=Kind.SEED,
        help="Seed of the random numbers.",
        range=Range(low=0, high=INT64_MAX),
        neutral=0,
        default=None,
        default_help="chosen by the service and returned in the result",
        checkpoint="",
        metavar="S",
    ),
    _beams(
        name="num_beams",
        kind=Kind.COUNT,
        help="Number of hypotheses that beam search keeps.",
        range=Range(low=1, high=ModelLimit.BEAMS),
        neutral=1,
        means="no beam search",
    ),
    _beams(
        name="length_penalty",
        kind=Kind.NUMBER,
        help="A hypothesis' score is divided by its length to the power of this exponent; above 0 "
        "favours long sequences.",
        range=Range(low=limits.MIN_LENGTH_PENALTY, high=limits.MAX_LENGTH_PENALTY),
        neutral=1.0,
        needs=Needs.BEAMS,
    ),
    _beams(
        name="early_stopping",
        kind=Kind.EARLY_STOPPING,
        help="When beam search stops. True: as soon as `num_beams` hypotheses have ended. False: "
        "when the best open one, scored at its present length, is no better than the ended ones. "
        '"never": when no open one can become better than them.',
        neutral=EarlyStopping.HEURISTIC,
        default_help="False",
        needs=Needs.BEAMS,
        command_help='When beam search stops: "first" once as many hypotheses as beams have ended, '
        '"heuristic" once no open hypothesis seems better than those, "never" only '
        "once none can become better.",
        metavar="WHEN",
    ),
    _beams(
        name="renormalize_logits",
        kind=Kind.FLAG,
        help="Turns the scores of each step into log-probabilities once more, after penalties, "
        "bans and filters.",
        neutral=False,
        default_help="False",
        needs=Needs.BEAMS,
    ),
    _beams(
        name="num_return_sequences",
        kind=Kind.COUNT,
        help="Number of sequences to return; at most `num_beams` with beam search, "
        f"{limits.MAX_RETURN_SEQUENCES} with sampling.",
        range=Range(low=1),
        default=1,
        on_device=False,
    ),
    _penalty(
        name="repetition_penalty",
        kind=Kind.NUMBER,
        help="Divides the positive and multiplies the negative logits of tokens that already "
        "occur.",
        range=Range(low=limits.MIN_REPETITION_PENALTY, high=limits.MAX_REPETITION_PENALTY),
        neutral=1.0,
    ),
    _penalty(
        name="no_repeat_ngram_size",
        kind=Kind.COUNT,
        help="No sequence of this many tokens occurs twice.",
        range=Range(low=0),
        neutral=0,
        means="no limit",
    ),
    _penalty(
        name="logit_bias",
        kind=Kind.LOGIT_BIAS,
        help=f"Numbers from {limits.MIN_BIAS:g} to {limits.MAX_BIAS:g} to add to the logits, by "
        "token id.",
        max_items=limits.MAX_BIASES,
        limits="together with `bad_words` and `suppress_tokens`",
        default_help="none",
        checkpoint="sequence_bias",
        on_device=False,
    ),
    _penalty(
        name="bad_words",
        kind=Kind.WORDS,
        help="Texts or token ids that are never generated. The service tokenizes a text unchanged "
        "(in mid-sentence a word usually begins with a space).",
        max_items=limits.MAX_BIASES,
        limits=f"each from 1 to {limits.MAX_BIAS_TOKENS} tokens",
        default_help="the model's, or none",
        checkpoint="",
        on_device=False,
        command_help="Texts that are never generated. The service tokenizes a text unchanged (in "
        "mid-sentence a word usually begins with a space).",
        flag="--bad-word",
    ),
    _penalty(
        name="bad_words_token_ids",
        kind=Kind.RUNS,
        help="Sequences of token ids that are never generated.",
        max_items=limits.MAX_BIASES,
        limits=f"each from 1 to {limits.MAX_BIAS_TOKENS} tokens",
        default_help="none",
        checkpoint="bad_words_ids",
        on_device=False,
    ),
    _penalty(
        name="suppress_tokens",
        kind=Kind.TOKENS,
        help="Tokens that are never generated, end tokens included.",
        max_items=limits.MAX_BIASES,
        limits="together with `logit_bias` and `bad_words`",
        default=(),
        on_device=False,
        flag="--suppress-token",
    ),
    _penalty(
        name="forced_bos_token_id",
        kind=Kind.TOKEN,
        help="Token to force right after a prompt of one token.",
        neutral=NO_TOKEN,
    ),
    _penalty(
        name="forced_eos_token_id",
        kind=Kind.TOKEN,
        help="Token to force as the last of `max_new_tokens` new tokens, if the sequence gets "
        "there.",
        neutral=NO_TOKEN,
    ),
    _penalty(
        name="source_language",
        kind=Kind.LANGUAGE,
        help="The language of the source, for models that translate: a code of the tokenizer's, "
        "such as `eng_Latn` (NLLB) or `en_XX` (mBART). Needs a source that is a text.",
        neutral="",
        default_help="the tokenizer's",
        checkpoint="",
        needs=Needs.ENCODER,
        on_device=False,
    ),
    _penalty(
        name="target_language",
        kind=Kind.LANGUAGE,
        help="The language to translate to, such as `fra_Latn` (NLLB), `fr_XX` (mBART) or `fra` "
        "(Marian). Takes the place of `forced_bos_token_id`.",
        neutral="",
        default_help="the model's",
        checkpoint="",
        needs=Needs.ENCODER,
        on_device=False,
    ),
    _penalty(
        name="encoder_repetition_penalty",
        kind=Kind.NUMBER,
        help="Multiplies the positive and divides the negative logits of tokens that the source "
        "contains.",
        range=Range(low=limits.MIN_REPETITION_PENALTY, high=limits.MAX_REPETITION_PENALTY),
        neutral=1.0,
        needs=Needs.ENCODER,
    ),
    _penalty(
        name="encoder_no_repeat_ngram_size",
        kind=Kind.COUNT,
        help="Never generates a sequence of this many tokens that occurs in the source.",
        range=Range(low=0),
        neutral=0,
        means="no limit",
        needs=Needs.ENCODER,
    ),
    _structure(
        name="json_schema",
        kind=Kind.TEXT,
        help="The text must be JSON that follows this JSON schema.",
        max_items=limits.MAX_CONSTRAINT_CHARACTERS,
        neutral="",
        metavar="JSON",
    ),
    _structure(
        name="regex",
        kind=Kind.TEXT,
        help="The whole text must match this regular expression.",
        max_items=limits.MAX_CONSTRAINT_CHARACTERS,
        neutral="",
    ),
    _structure(
        name="choices",
        kind=Kind.TEXTS,
        help="The text must be one of these.",
        max_items=limits.MAX_CHOICES,
        limits=f"each from 1 to {limits.MAX_STOP_CHARACTERS} characters",
        neutral=(),
        flag="--choice",
    ),
    _structure(
        name="grammar",
        kind=Kind.TEXT,
        help="The text must follow this context-free grammar, in Lark's syntax.",
        max_items=limits.MAX_CONSTRAINT_CHARACTERS,
        neutral="",
    ),
    _result(
        name="logprobs",
        kind=Kind.COUNT,
        help="Returns the log-probability of each new token. A number N above 0 also returns "
        "those of the N likeliest tokens. Must be 0 with beam search.",
        range=Range(low=0, high=limits.MAX_TOP_LOGPROBS),
        # On the device: report nothing.
        neutral=-1,
        default=None,
        default_help="none",
        checkpoint="",
        command_help="Returns the log-probability of each new token and of the N likeliest ones; "
        "0 with beam search. Needs --json.",
    ),
    _result(
        name="prompt_logprobs",
        kind=Kind.COUNT,
        help="Returns the log-probability of each token of the prompt but the first. A number "
        "above 0 also returns those of that many likeliest tokens.",
        range=Range(low=0, high=limits.MAX_TOP_LOGPROBS),
        default=None,
        default_help="none",
        checkpoint="",
        on_device=False,
        command_help="Returns the log-probability of each token of the prompt but the first, and "
        "of the N likeliest ones. Needs --json.",
    ),
    _result(
        name="echo",
        kind=Kind.FLAG,
        help="Begins the returned text and token ids with the prompt.",
        default_help="False",
        on_device=False,
        checkpoint="",
    ),
)
OPTIONS = {option.name: option for option in _OPTIONS}
