"""A checkpoint's generation options, which are the defaults for requests.

They are read as Transformers' `generate` reads them: from generation_config.json, or, if it is
missing, from config.json, where early versions stored them. Null counts as missing.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.generation.limits import (
    MAX_BIAS,
    MAX_BIAS_TOKENS,
    MAX_BIASES,
    MAX_RETURN_SEQUENCES,
    MIN_BIAS,
)
from shaperouter_service.generation.option import (
    EARLY_STOPPING,
    INT32_MAX,
    NO_TOKEN,
    EarlyStopping,
    Kind,
    ModelLimit,
    Needs,
    Option,
)
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.resolution import BIASING
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import EncoderDecoder, Family

log = structlog.get_logger(__name__)

# Options of Transformers that would change the output and that we don't support, each with the
# value besides null that has no effect.
UNSUPPORTED: Mapping[str, Any] = {
    "assistant_early_exit": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0,
    "dola_layers": None,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "guidance_scale": 1,
    "max_length": 20,
    "max_time": None,
    "min_length": 0,
    "num_beam_groups": 1,
    "penalty_alpha": 0,
    "prompt_lookup_num_tokens": None,
    "remove_invalid_values": False,
    "stop_strings": None,
    "token_healing": False,
    "top_h": None,
    "use_mtp": False,
    "watermarking_config": None,
}

# Those that models that make transcripts support in another way; see `transcripts`.
OF_TRANSCRIPTS = ("begin_suppress_tokens", "max_length")
# Those that models with an encoder for tokens support, by the option that they stand for.
LENGTHS: Mapping[str, str] = {"max_new_tokens": "max_length", "min_new_tokens": "min_length"}

# A `top_p` that leaves one token in any vocabulary: Transformers accepts 0 for that.
ONE_TOKEN = 1e-9


def read_default_options(checkpoint: Checkpoint, family: Family) -> dict[str, Any]:
    """Reads a checkpoint's generation options.

    The result has every option that has a default. One warning lists the unsupported options.

    Raises:
        StartupError: A value is of the wrong type or over a limit.
    """
    config = _of_generation(checkpoint, family)
    supported: tuple[str, ...] = OF_TRANSCRIPTS if family.has_transcript else ()
    if _reads_tokens(family):
        supported = tuple(LENGTHS.values())
        config = _with_new_tokens(config, family)
    config = _without_no_end(_as_transformers_samples(config))
    unsupported = [
        name
        for name, neutral in UNSUPPORTED.items()
        if config.values.get(name) not in (None, neutral, [], {}) and name not in supported
    ]
    options = _read_plain(config, family)
    unsupported += _unread(config, family)
    unsupported += _read_biases(config, family, options)
    for name in ("forced_bos_token_id", "forced_eos_token_id"):
        if options[name] in options["suppress_tokens"]:
            raise config.error(f"suppress_tokens must not have {name}, got {options[name]}")
    if unsupported:
        log.warning(
            "unsupported generation options of the checkpoint were ignored",
            file=str(config.path),
            options=unsupported,
        )
    return options


def read_default_lengths(checkpoint: Checkpoint, family: Family) -> tuple[int, int]:
    """Reads a checkpoint's largest and smallest length of a decoder's whole sequence.

    They are 0 where the checkpoint has none, or where it limits the new tokens instead.

    Raises:
        StartupError: A value is of the wrong type or over a limit.
    """
    found = _lengths(_of_generation(checkpoint, family), family)
    return found.get("max_new_tokens", 0), found.get("min_new_tokens", 0)


def read_decoder_start(checkpoint: Checkpoint, family: Family) -> int | None:
    """Reads the first token of a decoder's prompt; None for a family without an encoder.

    Raises:
        StartupError: The token is outside the vocabulary.
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


def _of_generation(checkpoint: Checkpoint, family: Family) -> Config:
    """The file that has the generation options."""
    if checkpoint.generation_config is not None:
        path = checkpoint.directory / "generation_config.json"
        return Config(path, checkpoint.generation_config)
    # End tokens are part of an architecture's defaults, which config.json leaves out.
    defaults = {
        "eos_token_id": family.default_eos_token_id,
        "forced_eos_token_id": family.default_forced_eos_token_id,
    }
    path = checkpoint.directory / "config.json"
    return _with_forced_bos(Config(path, defaults | checkpoint.config))


def _read_plain(config: Config, family: Family) -> dict[str, Any]:
    """Reads the options of `OPTIONS`, except biases and banned sequences."""
    options: dict[str, Any] = {}
    for name, option in OPTIONS.items():
        if not option.checkpoint or (option.needs is Needs.ENCODER and not _reads_tokens(family)):
            continue
        match option.kind:
            case Kind.FLAG:
                options[name] = config.value(option.checkpoint, bool, option.default)
            case Kind.COUNT | Kind.NUMBER:
                options[name] = _number(config, option, family)
            case Kind.EARLY_STOPPING:
                options[name] = _early_stopping(config, option)
            case Kind.TOKENS:
                options[name] = _known_tokens(config, option, family)
            case Kind.TOKEN:
                tokens = _tokens(config, option.checkpoint, family.vocab_size - 1)
                options[name] = tokens[0] if len(tokens) == 1 else option.default
    min_new = options["min_new_tokens"]
    if config.values.get("max_new_tokens") is None:
        options["max_new_tokens"] = max(options["max_new_tokens"], min_new)
    _check_range(config, "max_new_tokens", options, max(1, min_new), INT32_MAX)
    _check_range(config, "min_new_tokens", options, 0, family.max_length)
    max_sequences = options["num_beams"]
    if max_sequences == 1 and options["do_sample"]:
        max_sequences = MAX_RETURN_SEQUENCES
    _check_range(config, "num_return_sequences", options, 1, max_sequences)
    return options


def _with_forced_bos(config: Config) -> Config:
    """Adds the forced first token that early versions of BART's config.json ask for by a flag."""
    flag = "force_bos_token_to_be_generated"
    if not config.value(flag, bool, False):
        return config
    bos = config.values.get("bos_token_id")
    if bos is None:
        raise config.error(f"bos_token_id must be given with {flag}, got None")
    return Config(config.path, {**config.values, "forced_bos_token_id": bos})


def _as_transformers_samples(config: Config) -> Config:
    """Replaces values of sampling options outside our limits that Transformers accepts.

    Without `do_sample` it reads none of them, so some checkpoints have a temperature of 0 there.
    """
    values = dict(config.values)
    if values.get("do_sample") is True:
        if type(values.get("top_p")) in (int, float) and values["top_p"] == 0:
            values["top_p"] = ONE_TOKEN
        return Config(config.path, values)
    for option in OPTIONS.values():
        value: Any = values.get(option.checkpoint)
        limit = option.range if option.needs is Needs.SAMPLING else None
        if limit is None or type(value) not in (int, float):
            continue
        high = limit.high if isinstance(limit.high, int | float) else INT32_MAX
        if not limit.contains(value, high):
            values[option.checkpoint] = None
    return Config(config.path, values)


def _without_no_end(config: Config) -> Config:
    """Removes -1 from the end tokens, which some checkpoints have for none."""
    value = config.values.get("eos_token_id")
    tokens = value if isinstance(value, list) else [value]
    if NO_TOKEN not in tokens:
        return config
    ends = [token for token in tokens if token != NO_TOKEN]
    return Config(config.path, {**config.values, "eos_token_id": ends})


def _with_new_tokens(config: Config, family: Family) -> Config:
    """Adds the numbers of new tokens that limits of whole sequences leave after a start token.

    A longer prompt of the decoder leaves fewer; see `read_default_lengths`.
    """
    least = {"max_new_tokens": 1, "min_new_tokens": 0}
    lengths = _lengths(config, family)
    added = {name: max(least[name], length - 1) for name, length in lengths.items()}
    return Config(config.path, {**config.values, **added})


def _lengths(config: Config, family: Family) -> dict[str, int]:
    """Limits of a decoder's whole sequences, by the option that each stands for."""
    if not _reads_tokens(family):
        return {}
    return {
        name: config.number(of_sequence, int, 0, at_least=0, at_most=INT32_MAX)
        for name, of_sequence in LENGTHS.items()
        if config.values.get(name) is None and config.values.get(of_sequence) is not None
    }


def _unread(config: Config, family: Family) -> Iterator[str]:
    """Yields values whose option we support, but not in this form or not for this family."""
    for option in OPTIONS.values():
        key = option.checkpoint
        if option.kind is Kind.TOKEN and len(_tokens(config, key, INT32_MAX)) > 1:
            yield f"{key} of several tokens"
        unread = option.needs is Needs.ENCODER and not _reads_tokens(family)
        if unread and config.values.get(key) not in (None, option.neutral):
            yield key


def _reads_tokens(family: Family) -> bool:
    """Returns whether the family has an encoder that reads token ids instead of sound."""
    return isinstance(family, EncoderDecoder) and not family.has_transcript


def _tokens(config: Config, name: str, last: int) -> list[int]:
    """Reads a list of token ids, or a single one."""
    value = config.values.get(name)
    tokens: list[Any] = value if isinstance(value, list) else [] if value is None else [value]
    for token in tokens:
        _check_token(config, name, token, last)
    return tokens


def _known_tokens(config: Config, option: Option, family: Family) -> tuple[int, ...]:
    """Reads the tokens of a list that are in the vocabulary; others can never be generated."""
    tokens = _tokens(config, option.checkpoint, INT32_MAX)
    known = tuple(dict.fromkeys(token for token in tokens if token < family.vocab_size))
    if len(known) > option.max_items:
        raise config.error(
            f"{option.checkpoint} must have at most {option.max_items} ids, got {len(known)}"
        )
    return known


def _number(config: Config, option: Option, family: Family) -> int | float:
    limit = option.range
    if limit is None:
        raise TypeError(f"{option.name} has no range")
    high: float = INT32_MAX
    if limit.high is not None and not isinstance(limit.high, ModelLimit):
        high = limit.high
    value: int | float = config.number(
        option.checkpoint,
        float if option.kind is Kind.NUMBER else int,
        option.default,
        at_least=None if limit.above else limit.low,
        above=limit.low if limit.above else None,
        at_most=None if limit.below else high,
        below=high if limit.below else None,
    )
    # As in Transformers, more than all tokens means all.
    return min(value, family.vocab_size) if limit.high is ModelLimit.VOCABULARY else value


def _check_range(
    config: Config, name: str, options: Mapping[str, Any], low: int, high: int
) -> None:
    if not low <= options[name] <= high:
        raise config.error(f"{name} must be from {low} to {high}, got {options[name]}")


def _early_stopping(config: Config, option: Option) -> EarlyStopping:
    value = config.values.get(option.checkpoint)
    if value is None:
        return EarlyStopping(option.default)
    if not isinstance(value, bool) and value != "never":
        raise config.error(f'{option.checkpoint} must be true, false or "never", got {value!r}')
    return EARLY_STOPPING[value]


def _read_biases(config: Config, family: Family, options: dict[str, Any]) -> list[str]:
    """Adds biases and banned sequences to the options; returns what we don't support."""
    unsupported = []
    last = family.vocab_size - 1

    biases: dict[tuple[int, ...], float] = {}
    for entry in _list(config, "sequence_bias"):
        if not isinstance(entry, list) or len(entry) != 2:
            raise config.error(f"sequence_bias must have pairs of ids and a bias, got {entry!r}")
        run, bias = entry
        if type(bias) not in (int, float) or (type(bias) is float and math.isnan(bias)):
            raise config.error(f"sequence_bias must have numbers as biases, got {bias!r}")
        # Beyond any logit a larger bias has the same effect, and single precision would suffer.
        bias = float(min(max(bias, MIN_BIAS), MAX_BIAS))
        # For a repeated sequence the last bias counts, as in Transformers.
        biases[_run(config, "sequence_bias", run, last)] = bias
    if any(len(run) > 1 for run in biases):
        unsupported.append("sequence_bias of several tokens")
    single = tuple((run[0], bias) for run, bias in biases.items() if len(run) == 1)

    bans = [_run(config, "bad_words_ids", run, last) for run in _list(config, "bad_words_ids")]
    options["logit_bias"] = single
    options["bad_words_token_ids"] = tuple(dict.fromkeys(bans))

    lists = [name for name in BIASING if OPTIONS[name].checkpoint]
    if (count := sum(len(options[name]) for name in lists)) > MAX_BIASES:
        keys = ", ".join(OPTIONS[name].checkpoint for name in lists)
        raise config.error(f"{keys} must have at most {MAX_BIASES} entries in total, got {count}")
    return unsupported


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
