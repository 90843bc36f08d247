"""The options of a transcription, as keyword arguments."""

from collections.abc import Sequence
from typing import Literal, TypedDict


class TranscriptionOptions(TypedDict, total=False):
    """How to transcribe: keyword arguments of ``transcribe`` and ``transcribe_stream``.

    An option that is left out or None has its default, which is in brackets. The service checks the
    limits. Options are inputs of a graph. Only `num_beams` and `word_timestamps` choose other
    graphs, which may be compiled on first use.

    Attributes:
        language: The spoken language: its code or English name. [detected in the first window]
        task: Whether to transcribe or to translate into English. ["transcribe"]
        word_timestamps: Returns the times of each word. [False]
        timestamps: Lets the model decide when segments begin and end. [True]
        initial_prompt: Text that the model reads before the first window, such as names and
            spellings to expect; without special tokens. [none]
        condition_on_previous_text: Lets the model read the text of the previous windows. [True]
        temperatures: Temperatures to decode at, in turn, until a transcript passes the thresholds
            below; from 0 to 1, ascending; at most 8. [0, 0.2, 0.4, 0.6, 0.8, 1]
        num_beams: Number of hypotheses of beam search at temperature 0; 1 means no beam search. [1]
        best_of: Number of transcripts to sample at a temperature above 0; the likeliest one is
            used; from 1 to 16. [5]
        compression_ratio_threshold: A transcript with a larger compression ratio counts as
            repeating itself. [2.4]
        logprob_threshold: A transcript whose tokens have a smaller mean log-probability counts as
            improbable. [-1]
        no_speech_threshold: An improbable transcript counts as silence if the probability that
            nobody speaks is larger than this. [0.6]
        seed: Seed of the random numbers, from 0 to 2^63 - 1. [chosen by the service]
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
