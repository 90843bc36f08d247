"""The options of a transcription, as keyword arguments."""

from collections.abc import Sequence
from typing import Literal, TypedDict


class TranscriptionOptions(TypedDict, total=False):
    """How to transcribe: keyword arguments of ``transcribe`` and ``transcribe_stream``.

    Left out or None, an option is at its default, which stands in brackets. The service checks the
    limits; no value of any option compiles a graph, but for `num_beams`, which chooses the lane.

    Attributes:
        language: Language that is spoken: its code or English name. [heard in the first window]
        task: What the transcript is: what was said, or that in English. ["transcribe"]
        word_timestamps: Tell when each word was said. [False]
        timestamps: Let the model say when segments begin and end. [True]
        initial_prompt: Text that comes before the transcript: names and spellings to expect. [none]
        condition_on_previous_text: Let the model read what it heard in the windows before. [True]
        temperatures: Temperatures to decode at, one after the other, until a transcript is trusted;
            from 0 to 1, ascending; at most 8. [0, 0.2, 0.4, 0.6, 0.8, 1]
        num_beams: Hypotheses of beam search at temperature 0; 1 is none. [1]
        best_of: Transcripts that are sampled at a temperature above 0, of which the likeliest
            counts; from 1 to 16. [5]
        compression_ratio_threshold: Above it, a transcript repeats itself. [2.4]
        logprob_threshold: Below it, a transcript is improbable. [-1]
        no_speech_threshold: Above it, an improbable transcript is silence. [0.6]
        seed: Seed of the randomness, from 0 to 2^63 - 1. [chosen by the service]
    """

    language: str | None
    task: Literal["transcribe", "translate"] | None
    word_timestamps: bool | None
    timestamps: bool | None
    initial_prompt: str | None
    condition_on_previous_text: bool | None
    temperatures: Sequence[float] | None
    num_beams: int | None
    best_of: int | None
    compression_ratio_threshold: float | None
    logprob_threshold: float | None
    no_speech_threshold: float | None
    seed: int | None
