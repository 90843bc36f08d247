"""The sequential algorithm, which transcribes a recording of any length window by window."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from shaperouter_service.speech.transcription.languages import ENGLISH
from shaperouter_service.speech.transcription.quality import (
    Decoded,
    Thresholds,
    Verdict,
    assess,
    is_no_speech,
    is_repetitive,
)
from shaperouter_service.speech.transcription.segments import (
    FRAMES_PER_SECOND,
    Segment,
    Span,
    Word,
    split_at_timestamps,
)
from shaperouter_service.speech.transcription.tokens import Task, TranscriptTokens
from shaperouter_service.speech.transcription.words import (
    Decode,
    TimedWord,
    fit_to_segment,
    measure_pace,
    merge_punctuation,
    shorten_at_sentence_ends,
    split_words,
    words_of_segments,
)

# As in openai/whisper: text decoded above this temperature is a poor prompt for the next window.
PROMPT_RESET_TEMPERATURE = 0.5


@dataclass(frozen=True, kw_only=True)
class TranscriptionOptions:
    """How to transcribe.

    Attributes:
        language: Code of the spoken language; None for an English-only model.
        task: Whether to transcribe or to translate.
        timestamps: Whether the model says when segments begin and end; if not, each window is one
            segment.
        words: Whether to find the times of words.
        initial_prompt: Tokens of the text that precedes the transcript.
        condition_on_previous_text: Whether the model reads the text of previous windows.
        temperatures: Temperatures to decode at, in turn, until a transcript passes the thresholds.
        thresholds: Limits of an acceptable transcript.
        step_frames: While a recording arrives, decode its incomplete window after every this many
            frames. None waits for whole windows.
    """

    language: str | None
    task: Task = Task.TRANSCRIBE
    timestamps: bool = True
    words: bool = False
    initial_prompt: Sequence[int] = ()
    condition_on_previous_text: bool = True
    temperatures: Sequence[float] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    thresholds: Thresholds = field(default_factory=Thresholds)
    step_frames: int | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A window to decode.

    Attributes:
        first_frame: First frame of the window in the recording.
        frames: Frames of the recording in the window; the rest of the spectrogram is zeros.
        is_partial: Whether more of the recording will arrive in this window.
        prompt: The decoder's prompt.
        temperature: Temperature to decode at; 0 takes the likeliest tokens.
    """

    first_frame: int
    frames: int
    is_partial: bool
    prompt: Sequence[int]
    temperature: float

    @property
    def end_frame(self) -> int:
        """The frame after the last one of the recording in the window."""
        return self.first_frame + self.frames


@dataclass(frozen=True, kw_only=True)
class Alignment:
    """A transcript whose word times are needed.

    Attributes:
        first_frame: First frame of its window in the recording.
        frames: Frames of the recording in the window.
        prefix: Tokens before the words' in the decoder's input; the end token follows the words.
        words: Texts and tokens of the words.
    """

    first_frame: int
    frames: int
    prefix: Sequence[int]
    words: Sequence[tuple[str, Sequence[int]]]


@dataclass(frozen=True, kw_only=True)
class NeedAudio:
    """Nothing can be decoded until more of the recording arrives.

    Attributes:
        frames: Number of frames that the recording must have.
    """

    frames: int


@dataclass(frozen=True)
class Finished:
    """The recording is transcribed."""


@dataclass(frozen=True, kw_only=True)
class _Accepted:
    """An accepted transcript.

    Attributes:
        attempt: Its window, with the temperature at which it was decoded last.
        decoded: The transcript.
        spans: Its final spans.
        next_frame: First frame of the next window.
        reaches_end: See `SplitWindow`.
    """

    attempt: Attempt
    decoded: Decoded
    spans: Sequence[Span]
    next_frame: int
    reaches_end: bool


class Transcriber:
    """The state of one recording's transcript.

    `next` returns what to do. It can be called again, so work that was lost with a worker is simply
    repeated elsewhere. `accept` and `align` take the result. Not thread-safe.

    Attributes:
        next_frame: The first frame that is not transcribed yet.
    """

    def __init__(
        self,
        tokens: TranscriptTokens,
        options: TranscriptionOptions,
        *,
        decode: Decode,
        window_frames: int,
        max_length: int,
    ) -> None:
        """Begins a transcript.

        Args:
            tokens: Special tokens of the model.
            options: How to transcribe.
            decode: Converts tokens to text.
            window_frames: Frames of a whole window.
            max_length: Maximum tokens of a window, including the prompt.
        """
        self._tokens, self._options, self._decode = tokens, options, decode
        self._window_frames, self._max_length = window_frames, max_length
        self._received, self._is_complete = 0, False
        self.next_frame = 0
        # Tokens for the next window's prompt.
        self._previous = list(options.initial_prompt)
        self._attempt: Attempt | None = None
        self._tried: list[Decoded] = []
        self._accepted: _Accepted | None = None
        # Frames of the current window when it was last decoded incomplete.
        self._partial_frames = 0
        # End of the last word, in seconds.
        self._last_end = 0.0

    def feed(self, frames: int, *, is_complete: bool) -> None:
        """Sets how much of the recording has arrived.

        Args:
            frames: Frames that have arrived in all.
            is_complete: Whether all of it has arrived.
        """
        self._received, self._is_complete = frames, is_complete

    def next(self) -> Attempt | Alignment | NeedAudio | Finished:
        """Returns what to do next."""
        if self._accepted is not None:
            return self._alignment(self._accepted)
        if self._attempt is None:
            chosen = self._choose_window()
            if not isinstance(chosen, Attempt):
                return chosen
            self._attempt = chosen
        return self._attempt

    def accept(self, candidates: Sequence[Decoded]) -> Sequence[Segment]:
        """Takes the transcripts of an attempt.

        Args:
            candidates: One transcript, or several at a temperature above 0.

        Returns:
            Final segments; none if the window is decoded again, aligned next, or silent.
        """
        attempt = self._attempt
        if attempt is None:
            raise RuntimeError("nothing is being decoded")
        options = self._options
        decoded = max(candidates, key=lambda one: one.rank)
        verdict = assess(decoded, options.thresholds)
        self._tried.append(decoded)
        if verdict is Verdict.RETRY:
            if len(self._tried) < len(options.temperatures):
                temperature = options.temperatures[len(self._tried)]
                self._attempt = replace(attempt, temperature=temperature)
                return []
            decoded = self._best_rejected()
            if is_no_speech(decoded, options.thresholds):
                verdict = Verdict.SKIP
        self._attempt, self._tried = None, []
        if verdict is Verdict.SKIP:
            if attempt.is_partial:
                # Speech may have begun at its end.
                return self._wait(attempt)
            self._advance(attempt.end_frame)
            return []
        accepted = self._accept(attempt, decoded)
        if accepted.next_frame == attempt.first_frame:
            # Only an incomplete window may have nothing that is final.
            return self._wait(attempt)
        if options.words and any(self._tokens.text(span.token_ids) for span in accepted.spans):
            self._accepted = accepted
            return []
        return self._finish(accepted, [(span, ()) for span in accepted.spans])

    def align(self, words: Sequence[TimedWord]) -> Sequence[Segment]:
        """Takes the word times of an `Alignment` and returns final segments."""
        accepted = self._accepted
        if accepted is None:
            raise RuntimeError("nothing is being aligned")
        self._accepted = None
        pace = measure_pace(words)
        merged = merge_punctuation(shorten_at_sentence_ends(words, pace))
        text_tokens = [len(self._tokens.text(span.token_ids)) for span in accepted.spans]
        offset = accepted.attempt.first_frame / FRAMES_PER_SECOND
        timed: list[tuple[Span, Sequence[Word]]] = []
        for span, found in zip(
            accepted.spans, words_of_segments(merged, text_tokens, offset), strict=True
        ):
            if not found:
                timed.append((span, ()))
                continue
            fitted, start, end = fit_to_segment(
                found,
                start=span.start / FRAMES_PER_SECOND,
                end=span.end / FRAMES_PER_SECOND,
                last_end=self._last_end,
                pace=pace,
            )
            self._last_end = end
            frames = [round(seconds * FRAMES_PER_SECOND) for seconds in (start, end)]
            timed.append((replace(span, start=frames[0], end=frames[1]), fitted))
        last = next((found[-1] for _, found in reversed(timed) if found), None)
        if last is not None and not accepted.reaches_end and last.end > offset:
            # More precise than the timestamp where the model was cut off. A word that was fitted to
            # its segment may end after the window.
            next_frame = min(round(last.end * FRAMES_PER_SECOND), accepted.attempt.end_frame)
            accepted = replace(accepted, next_frame=next_frame)
        return self._finish(accepted, timed)

    def _choose_window(self) -> Attempt | NeedAudio | Finished:
        left = self._received - self.next_frame
        if self._is_complete and left <= 0:
            return Finished()
        is_partial = not self._is_complete and left < self._window_frames
        if is_partial:
            step = self._options.step_frames
            enough = self._window_frames
            # Without timestamps, nothing is final before the whole window has been heard.
            if step is not None and self._options.timestamps:
                enough = min(enough, self._partial_frames + step)
            if left < enough:
                return NeedAudio(frames=self.next_frame + enough)
        return Attempt(
            first_frame=self.next_frame,
            frames=min(left, self._window_frames),
            is_partial=is_partial,
            prompt=self._prompt(),
            temperature=self._options.temperatures[0],
        )

    def _prompt(self) -> list[int]:
        options, tokens = self._options, self._tokens
        prompt = tokens.start_sequence(options.language, options.task)
        if not options.timestamps:
            prompt.append(tokens.no_timestamps)
        if self._previous:
            # Leave half of the positions for new tokens.
            self._previous = self._previous[1 - self._max_length // 2 :]
            prompt = [tokens.previous, *self._previous, *prompt]
        return prompt

    def _best_rejected(self) -> Decoded:
        """The likeliest rejected transcript, if possible one that is not repetitive."""
        thresholds = self._options.thresholds
        candidates = [one for one in self._tried if not is_repetitive(one, thresholds)]
        return max(candidates or self._tried, key=lambda one: one.mean_logprob)

    def _accept(self, attempt: Attempt, decoded: Decoded) -> _Accepted:
        split = split_at_timestamps(
            decoded.token_ids,
            self._tokens,
            first_frame=attempt.first_frame,
            frames=attempt.frames,
        )
        spans, next_frame = split.spans, split.next_frame
        if attempt.is_partial:
            # Speech that ends later, or has no end yet, may continue in audio that has not arrived.
            heard = spans[:-1] if split.reaches_end else spans
            final = list(takewhile(lambda span: span.end <= attempt.end_frame, heard))
            if len(final) < len(spans):
                spans, next_frame = final, final[-1].end if final else attempt.first_frame
        return _Accepted(
            attempt=attempt,
            decoded=decoded,
            spans=spans,
            next_frame=next_frame,
            reaches_end=split.reaches_end and not attempt.is_partial,
        )

    def _alignment(self, accepted: _Accepted) -> Alignment:
        options, tokens = self._options, self._tokens
        text = [token for span in accepted.spans for token in tokens.text(span.token_ids)]
        return Alignment(
            first_frame=accepted.attempt.first_frame,
            frames=accepted.attempt.frames,
            prefix=[
                *tokens.start_sequence(options.language, options.task),
                tokens.no_timestamps,
            ],
            # A translation is English, whatever was spoken.
            words=split_words(
                text, self._decode, ENGLISH if options.task is Task.TRANSLATE else options.language
            ),
        )

    def _finish(
        self, accepted: _Accepted, timed: Sequence[tuple[Span, Sequence[Word]]]
    ) -> Sequence[Segment]:
        decoded = accepted.decoded
        segments = [
            Segment(
                start=span.start / FRAMES_PER_SECOND,
                end=span.end / FRAMES_PER_SECOND,
                token_ids=span.token_ids,
                text=self._decode(self._tokens.text(span.token_ids)),
                temperature=accepted.attempt.temperature,
                mean_logprob=decoded.mean_logprob,
                compression_ratio=decoded.compression_ratio,
                no_speech_probability=decoded.no_speech_probability,
                words=words,
            )
            for span, words in timed
        ]
        segments = [one for one in segments if one.start != one.end and one.text.strip()]
        self._previous += [token for one in segments for token in one.token_ids]
        is_uncertain = accepted.attempt.temperature > PROMPT_RESET_TEMPERATURE
        if is_uncertain or not self._options.condition_on_previous_text:
            self._previous = []
        self._advance(accepted.next_frame)
        return segments

    def _advance(self, next_frame: int) -> None:
        self.next_frame, self._partial_frames = next_frame, 0

    def _wait(self, attempt: Attempt) -> Sequence[Segment]:
        """Leaves an incomplete window until more of it has arrived."""
        self._partial_frames = attempt.frames
        return []
