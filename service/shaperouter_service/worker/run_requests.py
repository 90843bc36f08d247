"""Conversion of a router's request to a run: checked, and with the inputs of the device."""

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shaperouter_service.decoding import Options, TranscriptRules
from shaperouter_service.decoding.options import ON_DEVICE
from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.generation.limits import (
    MAX_BEGIN_SUPPRESSED,
    MAX_BIAS_TOKENS,
    MAX_BIASES,
    MAX_EOS_TOKENS,
    MAX_STOP,
    MAX_STOP_CHARACTERS,
    MAX_TOP_LOGPROBS,
)
from shaperouter_service.generation.option import NO_TOKEN
from shaperouter_service.generation.run_request import RunRequest, Sound, TranscriptConstraints
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.speech.audio.spectrum import window_source_size
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.worker.run import Event, Run, Timings

# Data type of the samples in a request.
_SAMPLES = np.dtype("<f4")


def make_run(request: RunRequest, model: ServedModel, emit: Callable[[Event], None]) -> Run:
    """Builds the run of a checked request.

    Args:
        request: The router's request.
        model: The model that runs it.
        emit: Called with the events of the run.
    """
    options = request.options
    transcribes = model.transcripts is not None
    source: Any = request.source_token_ids
    source_key, valid_length = b"", 0
    if request.sound is not None:
        source = np.frombuffer(request.sound.samples, _SAMPLES)
        # The same window is read several times, a text seldom.
        source_key = hashlib.blake2b(request.sound.samples, digest_size=16).digest()
        valid_length = request.sound.positions
    return Run(
        request_id=request.request_id,
        client=request.client,
        prefix_scope=request.prefix_scope,
        resumed=request.resumed,
        suspect=request.suspect,
        lane_beams=request.lane_beams,
        token_ids=request.token_ids,
        source=source,
        source_key=source_key,
        # A window always has its full length.
        source_length=model.max_source_length if transcribes else len(source),
        valid_length=valid_length,
        aligns=request.align_after is not None,
        generated_token_ids=request.generated_token_ids,
        max_new_tokens=options["max_new_tokens"],
        eos_token_ids=options["eos_token_ids"],
        num_beams=options["num_beams"],
        num_return_sequences=options["num_return_sequences"],
        logprobs=options["logprobs"],
        prompt_logprobs=options["prompt_logprobs"],
        scored=request.scored_tokens,
        options=Options.of(
            **{name: options[name] for name in ON_DEVICE},
            biases=options["biases"],
            transcript=_rules(request.constraints or TranscriptConstraints())
            if transcribes
            else (),
        ),
        emit=emit,
        timings=Timings(arrived=time.monotonic()),
    )


def check(request: RunRequest, model: ServedModel) -> None:
    """Refuses requests that would break the device thread, and with it every other run.

    Routers check the same and more, but with the limits that another worker may have reported.

    Raises:
        InvalidRequestError: The run does not fit this worker's model.
    """
    ids, options, num_beams = request.token_ids, request.options, request.options["num_beams"]
    source = request.source_token_ids
    transcribes = model.transcripts is not None
    longest_source = 0 if transcribes else model.max_source_length
    aligns = request.align_after is not None
    # There is one lane without beam search.
    widest = model.max_beams if num_beams > 1 else 1
    generated = request.generated_token_ids
    last_token = model.vocab_size - 1
    biased = [token for token_ids, _ in options["biases"] for token in token_ids]
    stop_lengths = [len(string) for string in options["stop"]]
    bias_lengths = [len(token_ids) for token_ids, _ in options["biases"]]
    for field, value, low, high in (
        ("token_ids", len(ids), 1, model.max_length),
        ("token_ids", min(ids, default=0), 0, last_token),
        ("token_ids", max(ids, default=0), 0, last_token),
        ("source_token_ids", len(source), min(1, longest_source), longest_source),
        ("source_token_ids", min(source, default=0), 0, last_token),
        ("source_token_ids", max(source, default=0), 0, last_token),
        (
            "options.max_new_tokens",
            options["max_new_tokens"],
            0,
            0 if aligns else model.max_length - len(ids),
        ),
        ("options.eos_token_ids", len(options["eos_token_ids"]), 0, MAX_EOS_TOKENS),
        ("options.seed", options["seed"], 0, 2**63 - 1),
        ("options.stop", len(options["stop"]), 0, MAX_STOP if num_beams > 1 else 0),
        ("options.stop", min(stop_lengths, default=1), 1, MAX_STOP_CHARACTERS),
        ("options.stop", max(stop_lengths, default=1), 1, MAX_STOP_CHARACTERS),
        ("options.num_beams", num_beams, 1, model.max_beams),
        ("lane_beams", request.lane_beams or num_beams, num_beams, widest),
        ("options.num_return_sequences", options["num_return_sequences"], 1, num_beams),
        ("options.biases", len(options["biases"]), 0, MAX_BIASES),
        ("options.biases.token_ids", min(bias_lengths, default=1), 1, MAX_BIAS_TOKENS),
        ("options.biases.token_ids", max(bias_lengths, default=1), 1, MAX_BIAS_TOKENS),
        ("options.biases.token_ids", min(biased, default=0), 0, last_token),
        ("options.biases.token_ids", max(biased, default=0), 0, last_token),
        ("options.logprobs", options["logprobs"] or 0, 0, MAX_TOP_LOGPROBS),
        ("options.prompt_logprobs", options["prompt_logprobs"] or 0, 0, MAX_TOP_LOGPROBS),
        ("scored_tokens", request.scored_tokens, 0, max(0, len(ids) - 1)),
        ("generated_token_ids", len(generated), 0, max(0, options["max_new_tokens"] - 1)),
        ("generated_token_ids", min(generated, default=0), 0, last_token),
        ("generated_token_ids", max(generated, default=0), 0, last_token),
        *(_of_transcript(request, model, model.transcripts) if model.transcripts else ()),
    ):
        if not low <= value <= high:
            raise InvalidRequestError.of(field, f"must be from {low} to {high}, got {value}")
    for unasked, value in (("sound", request.sound), ("alignment", request.align_after)):
        if not transcribes and value is not None:
            raise InvalidRequestError.of(
                unasked, f"must not be set: {model.name} makes no transcripts"
            )
    if transcribes and options["prompt_logprobs"] is not None:
        raise InvalidRequestError.of(
            "options.prompt_logprobs", f"must not be set: {model.name} makes transcripts"
        )
    if generated and num_beams > 1:
        raise InvalidRequestError.of(
            "generated_token_ids", f"must be empty with beam search, got {len(generated)} ids"
        )
    # A run ends with its first end token, whatever its options are.
    if ends := set(generated).intersection(options["eos_token_ids"]):
        raise InvalidRequestError.of(
            "generated_token_ids", f"must not contain an end token, got {min(ends)}"
        )


def _of_transcript(
    request: RunRequest, model: ServedModel, settings: TranscriptSettings
) -> Iterator[tuple[str, int, int, int]]:
    """Fields of a request for a transcript, with their values and limits."""
    constraints, tokens = request.constraints or TranscriptConstraints(), len(request.token_ids)
    sound = request.sound or Sound(samples=b"", positions=0)
    size = window_source_size(settings.window_frames) * _SAMPLES.itemsize
    last_token = model.vocab_size - 1
    position = "options.transcript.no_speech_place"
    yield "sound.samples", len(sound.samples), size, size
    yield "sound.positions", sound.positions, 0, model.max_source_length
    suppressed = constraints.begin_suppressed
    yield "options.transcript.begin_suppressed", len(suppressed), 0, MAX_BEGIN_SUPPRESSED
    yield "options.transcript.no_speech", constraints.no_speech or 0, 0, last_token
    yield position, constraints.no_speech_position, 0, tokens - 1
    if request.align_after is not None:
        yield "alignment.prefix_tokens", request.align_after, 1, tokens - 1
        yield "options.num_beams", request.options["num_beams"], 1, 1


def _rules(constraints: TranscriptConstraints) -> TranscriptRules:
    first, no_speech = constraints.first_timestamp, constraints.no_speech
    min_first = constraints.min_first_token
    return TranscriptRules.of(
        first_timestamp=NO_TOKEN if first is None else first,
        last_initial_timestamp=constraints.last_initial_timestamp,
        begin_suppressed=constraints.begin_suppressed,
        first_token=(NO_TOKEN, NO_TOKEN)
        if min_first is None
        else (min_first, constraints.max_first_token),
        no_speech_token=NO_TOKEN if no_speech is None else no_speech,
        no_speech_position=constraints.no_speech_position,
    )
