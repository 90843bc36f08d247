"""A checkpoint's settings for transcripts: special tokens, their rules and alignment heads.

They are read from generation_config.json, as Transformers writes it since it supports word
timestamps.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.generation.limits import MAX_BEGIN_SUPPRESSED, MAX_BIASES
from shaperouter_service.models.config import Config
from shaperouter_service.models.defaults import read_decoder_start
from shaperouter_service.models.whisper import FRAMES_PER_POSITION, Whisper
from shaperouter_service.speech.transcription import Task, TranscriptSettings, TranscriptTokens

# Default if a checkpoint names none: one second, in timestamp steps.
MAX_INITIAL_TIMESTAMP = 50

_LANGUAGE = re.compile(r"<\|(\w+)\|>")


@dataclass(frozen=True, kw_only=True)
class Transcripts:
    """How a model makes transcripts.

    Attributes:
        settings: Tokens and limits of its transcripts.
        alignment_heads: Layers and heads of the decoder that attend to the words being spoken.
    """

    settings: TranscriptSettings
    alignment_heads: Sequence[tuple[int, int]]


def read_transcripts(checkpoint: Checkpoint, family: Whisper) -> Transcripts:
    """Reads how a checkpoint makes transcripts.

    Raises:
        StartupError: The file is missing, lacks a value that has no default, or has an unusable
            value.
    """
    path = checkpoint.directory / "generation_config.json"
    config = Config(path, checkpoint.generation_config or {})
    last = family.vocab_size - 1
    if config.values.get("no_timestamps_token_id") is None:
        raise config.error(
            "must have no_timestamps_token_id for transcripts; checkpoints saved before word "
            "timestamps existed lack it, so take a newer generation_config.json"
        )
    # All vocabularies have the special tokens in the same order.
    no_timestamps = config.number("no_timestamps_token_id", int, 0, at_least=3, at_most=last - 1)
    end = config.number("eos_token_id", int, family.default_eos_token_id, at_least=1, at_most=last)
    tokens = TranscriptTokens(
        end=end,
        start=read_decoder_start(checkpoint, family) or 0,
        languages=_languages(config, last),
        tasks={Task(name): token for name, token in _ids(config, "task_to_id", last).items()},
        previous=config.number(
            "prev_sot_token_id", int, no_timestamps - 2, at_least=0, at_most=last
        ),
        no_speech=no_timestamps - 1,
        no_timestamps=no_timestamps,
    )
    if tokens.is_multilingual and set(tokens.tasks) != set(Task):
        names = ", ".join(Task)
        raise config.error(f"task_to_id must have {names}, got {', '.join(tokens.tasks) or 'none'}")
    initial = config.number(
        "max_initial_timestamp_index", int, MAX_INITIAL_TIMESTAMP, at_least=0, at_most=last
    )
    return Transcripts(
        settings=TranscriptSettings(
            tokens=tokens,
            suppressed=_suppressed(config, "suppress_tokens", MAX_BIASES, last),
            begin_suppressed=_suppressed(
                config, "begin_suppress_tokens", MAX_BEGIN_SUPPRESSED, last
            ),
            last_initial_timestamp=min(tokens.first_timestamp + initial, last),
            mel_bands=family.num_mel_bins,
            window_frames=family.max_source_positions * FRAMES_PER_POSITION,
        ),
        alignment_heads=_alignment_heads(config, family),
    )


def _languages(config: Config, last: int) -> Mapping[str, int]:
    languages = {}
    for name, token in _ids(config, "lang_to_id", last).items():
        match = _LANGUAGE.fullmatch(name)
        if match is None:
            raise config.error(f"lang_to_id must have names such as <|en|>, got {name!r}")
        languages[match[1]] = token
    return languages


def _ids(config: Config, name: str, last: int) -> Mapping[str, int]:
    ids = config.values.get(name) or {}
    if not isinstance(ids, dict):
        raise config.error(f"{name} must have ids by name, got {ids!r}")
    for token in ids.values():
        _check_token(config, name, token, last)
    return ids


def _suppressed(config: Config, name: str, max_ids: int, last: int) -> Sequence[int]:
    tokens = config.values.get(name) or []
    if not isinstance(tokens, list) or len(tokens) > max_ids:
        raise config.error(f"{name} must be a list of at most {max_ids} ids, got {tokens!r}")
    for token in tokens:
        _check_token(config, name, token, last)
    return tokens


def _check_token(config: Config, name: str, token: object, last: int) -> None:
    if type(token) is not int or not 0 <= token <= last:
        raise config.error(f"{name} must have ids from 0 to {last}, got {token!r}")


def _alignment_heads(config: Config, family: Whisper) -> Sequence[tuple[int, int]]:
    layers, heads = family.decoder_layers, family.decoder_attention_heads
    given: Any = config.values.get("alignment_heads")
    if given is None:
        # As in openai/whisper: all heads of the upper half of the layers.
        return [(layer, head) for layer in range(layers // 2, layers) for head in range(heads)]
    right = isinstance(given, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and all(type(value) is int for value in pair)
        and 0 <= pair[0] < layers
        and 0 <= pair[1] < heads
        for pair in given
    )
    if not right or not given:
        raise config.error(
            f"alignment_heads must have pairs of a layer below {layers} and a head below {heads}, "
            f"got {given!r}"
        )
    return [(layer, head) for layer, head in given]
