"""A checkpoint's generation options: what its requests get that don't say otherwise.

They are read as Transformers' `generate` reads them: from generation_config.json, or, where there
is none, from config.json, where early versions kept them. Null counts as left out.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from shaperouter.v1 import generation_pb2
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.generation.limits import MAX_BIAS_TOKENS, MAX_BIASES, MAX_EOS_TOKENS
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import EncoderDecoder, Family

log = structlog.get_logger(__name__)

INT32_MAX = 2**31 - 1
# Tokens that a request gets which does not say; Transformers' 20 end in mid-sentence.
MAX_NEW_TOKENS = 64
# Most sequences that sampling without beams returns.
MAX_SAMPLED_SEQUENCES = 16

# Options of Transformers that would change what is generated and that we don't have, with the value
# besides null that changes nothing.
UNSUPPORTED: Mapping[str, Any] = {
    "assistant_early_exit": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "guidance_scale": 1,
    "max_length": 20,
    "max_time": None,
    "min_length": 0,
    "num_beam_groups": 1,
    "penalty_alpha": 0,
    "prompt_lookup_num_tokens": None,
    "renormalize_logits": False,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "use_mtp": False,
    "watermarking_config": None,
}

# Of these, what models that make transcripts do have, in another way; see `transcripts`.
OF_TRANSCRIPTS = ("begin_suppress_tokens", "max_length")

EARLY_STOPPING: Mapping[bool | str, generation_pb2.EarlyStopping] = {
    False: generation_pb2.EARLY_STOPPING_HEURISTIC,
    True: generation_pb2.EARLY_STOPPING_FIRST,
    "never": generation_pb2.EARLY_STOPPING_NEVER,
}


def read_default_options(
    checkpoint: Checkpoint, family: Family
) -> generation_pb2.GenerationOptions:
    """Reads a checkpoint's generation options.

    Every option that has a default is set. What we don't support is told in one warning.

    Raises:
        StartupError: A value is of the wrong type or over a limit.
    """
    if checkpoint.generation_config is None:
        config = Config(checkpoint.directory / "config.json", checkpoint.config)
        # A model's end token is part of its architecture's defaults, which config.json leaves out.
        eos = checkpoint.config.get("eos_token_id", family.default_eos_token_id)
    else:
        path = checkpoint.directory / "generation_config.json"
        config = Config(path, checkpoint.generation_config)
        eos = checkpoint.generation_config.get("eos_token_id")
    unsupported = [
        name
        for name, neutral in UNSUPPORTED.items()
        if config.values.get(name) not in (None, neutral, [], {})
        and not (family.has_transcript and name in OF_TRANSCRIPTS)
    ]
    options = _read_numbers(config, family)
    options.eos_token_ids.extend(_eos_token_ids(config, eos, family))
    unsupported += _read_biases(config, family, options)
    if unsupported:
        log.warning(
            "unsupported generation options of the checkpoint were ignored",
            file=str(config.path),
            options=unsupported,
        )
    return options


def read_decoder_start(checkpoint: Checkpoint, family: Family) -> int | None:
    """Reads what a decoder's prompt begins with; None for a family without an encoder.

    Raises:
        StartupError: It is none of the vocabulary.
    """
    if not isinstance(family, EncoderDecoder):
        return None
    name = "decoder_start_token_id"
    for file, content in (
        ("generation_config.json", checkpoint.generation_config or {}),
        ("config.json", checkpoint.config),
    ):
        if content.get(name) is not None:
            config = Config(checkpoint.directory / file, content)
            return config.number(name, int, 0, at_least=0, at_most=family.vocab_size - 1)
    return family.default_decoder_start_token_id


def _read_numbers(config: Config, family: Family) -> generation_pb2.GenerationOptions:
    do_sample = config.value("do_sample", bool, False)
    num_beams = config.number("num_beams", int, 1, at_least=1, at_most=INT32_MAX)
    min_new_tokens = config.number("min_new_tokens", int, 0, at_least=0, at_most=family.max_length)
    early_stopping = config.values.get("early_stopping")
    if early_stopping is None:
        early_stopping = False
    if not isinstance(early_stopping, bool) and early_stopping != "never":
        raise config.error(f'early_stopping must be true, false or "never", got {early_stopping!r}')
    most_sequences = num_beams
    if num_beams == 1 and do_sample:
        most_sequences = MAX_SAMPLED_SEQUENCES
    return generation_pb2.GenerationOptions(
        max_new_tokens=config.number(
            "max_new_tokens",
            int,
            max(MAX_NEW_TOKENS, min_new_tokens),
            at_least=max(1, min_new_tokens),
            at_most=INT32_MAX,
        ),
        do_sample=do_sample,
        temperature=config.number("temperature", float, 1.0, at_least=1e-6, at_most=1e6),
        top_k=config.number(
            "top_k", int, min(50, family.vocab_size), at_least=0, at_most=family.vocab_size
        ),
        top_p=config.number("top_p", float, 1.0, above=0, at_most=1),
        min_p=config.number("min_p", float, 0.0, at_least=0, at_most=1),
        typical_p=config.number("typical_p", float, 1.0, above=0, at_most=1),
        repetition_penalty=config.number(
            "repetition_penalty", float, 1.0, at_least=1e-3, at_most=1e3
        ),
        no_repeat_ngram_size=config.number(
            "no_repeat_ngram_size", int, 0, at_least=0, at_most=INT32_MAX
        ),
        min_new_tokens=min_new_tokens,
        num_beams=num_beams,
        num_return_sequences=config.number(
            "num_return_sequences", int, 1, at_least=1, at_most=most_sequences
        ),
        length_penalty=config.number("length_penalty", float, 1.0, at_least=-10, at_most=10),
        early_stopping=EARLY_STOPPING[early_stopping],
    )


def _eos_token_ids(config: Config, value: object, family: Family) -> list[int]:
    ids: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    for token in ids:
        _check_token(config, "eos_token_id", token, INT32_MAX)
    # An end token that the vocabulary lacks can never be produced.
    known = list(dict.fromkeys(token for token in ids if token < family.vocab_size))
    if len(known) > MAX_EOS_TOKENS:
        raise config.error(f"eos_token_id must have at most {MAX_EOS_TOKENS} ids, got {len(known)}")
    return known


def _read_biases(
    config: Config, family: Family, options: generation_pb2.GenerationOptions
) -> list[str]:
    """Adds biases and banned runs to the options; returns what cannot be said there."""
    unsupported = []
    last = family.vocab_size - 1

    biases: dict[tuple[int, ...], Any] = {}
    for entry in _list(config, "sequence_bias"):
        if not isinstance(entry, list) or len(entry) != 2:
            raise config.error(f"sequence_bias must have pairs of ids and a bias, got {entry!r}")
        run, bias = entry
        if type(bias) not in (int, float) or not -1e4 <= bias <= 1e4:
            raise config.error(f"sequence_bias must have biases from -1e4 to 1e4, got {bias!r}")
        # A run that is there twice has its last bias, as in Transformers.
        biases[_run(config, "sequence_bias", run, last)] = bias
    for tokens, bias in biases.items():
        if len(tokens) == 1:
            options.logit_bias.add(token_id=tokens[0], bias=bias)
        else:
            unsupported.append("sequence_bias of several tokens")

    bans = [_run(config, "bad_words_ids", run, last) for run in _list(config, "bad_words_ids")]
    for token in _list(config, "suppress_tokens"):
        _check_token(config, "suppress_tokens", token, INT32_MAX)
        # A banned run of one end token is ignored; a suppressed end token is not.
        if token in options.eos_token_ids:
            unsupported.append("suppress_tokens of end tokens")
        elif token <= last:
            bans.append((token,))
    options.bad_words_token_ids.extend(
        generation_pb2.TokenIds(ids=run) for run in dict.fromkeys(bans)
    )

    count = len(options.logit_bias) + len(options.bad_words_token_ids)
    if count > MAX_BIASES:
        raise config.error(
            "sequence_bias, bad_words_ids and suppress_tokens must have at most "
            f"{MAX_BIASES} entries in total, got {count}"
        )
    return list(dict.fromkeys(unsupported))


def _list(config: Config, name: str) -> list[Any]:
    value = config.values.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise config.error(f"{name} must be a list, got {value!r}")
    return value


def _run(config: Config, name: str, run: object, last: int) -> tuple[int, ...]:
    if not isinstance(run, list) or not 1 <= len(run) <= MAX_BIAS_TOKENS:
        raise config.error(f"{name} must have lists of 1 to {MAX_BIAS_TOKENS} ids, got {run!r}")
    for token in run:
        _check_token(config, name, token, last)
    return tuple(run)


def _check_token(config: Config, name: str, token: object, last: int) -> None:
    if type(token) is not int or not 0 <= token <= last:
        raise config.error(f"{name} must have ids from 0 to {last}, got {token!r}")
