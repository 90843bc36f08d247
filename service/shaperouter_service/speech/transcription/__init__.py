"""Rules of transcription, from a recording to a transcript, over tokens. No I/O, no TensorFlow.

A recording is transcribed window by window; each window begins where the last one's transcript
ended (section 4.5 of Radford et al. 2022, as in openai/whisper and faster-whisper):

1. `Transcriber.next` returns what to decode: a window, the decoder's prompt and a temperature.
2. `Transcriber.accept` takes the result. A transcript that repeats itself or is improbable is
   decoded again at a higher temperature; a window without speech is skipped.
3. `segments` splits the tokens at their timestamps.
4. For word timestamps, the window is aligned: `words` computes times from attention by dynamic time
   warping.
5. The next window begins where the last segment ended, with its text as a prompt.
"""

from shaperouter_service.speech.transcription.languages import language_names, resolve_language
from shaperouter_service.speech.transcription.quality import Decoded, Thresholds
from shaperouter_service.speech.transcription.segments import Segment, Word
from shaperouter_service.speech.transcription.tokens import (
    Task,
    TranscriptSettings,
    TranscriptTokens,
)
from shaperouter_service.speech.transcription.transcriber import (
    Alignment,
    Attempt,
    Finished,
    NeedAudio,
    Transcriber,
    TranscriptionOptions,
)

__all__ = [
    "Alignment",
    "Attempt",
    "Decoded",
    "Finished",
    "NeedAudio",
    "Segment",
    "Task",
    "Thresholds",
    "Transcriber",
    "TranscriptSettings",
    "TranscriptTokens",
    "TranscriptionOptions",
    "Word",
    "language_names",
    "resolve_language",
]
