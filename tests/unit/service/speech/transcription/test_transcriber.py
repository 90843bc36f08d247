"""A recording is transcribed window after window, as openai/whisper does."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from harness.transcripts import END, TOKENS, decode, transcript
from shaperouter_service.speech.transcription import (
    Alignment,
    Attempt,
    Decoded,
    Finished,
    NeedAudio,
    Segment,
    Task,
    Thresholds,
    Transcriber,
    TranscriptionOptions,
)
from shaperouter_service.speech.transcription.words import TimedWord

WINDOW = 3000
START = TOKENS.start_sequence("en", Task.TRANSCRIBE)
TEXT = "The quick brown fox jumps over the lazy dog."


def transcriber(
    frames: int = 10 * WINDOW, *, is_complete: bool = True, **options: object
) -> Transcriber:
    settings: dict[str, object] = {"language": "en"} | options
    made = Transcriber(
        TOKENS,
        TranscriptionOptions(**settings),  # type: ignore[arg-type]  # of any type
        decode=decode,
        window_frames=WINDOW,
        max_length=20,
    )
    made.feed(frames, is_complete=is_complete)
    return made


def decoded(
    *parts: str | float, mean_logprob: float = -0.2, no_speech: float = 0.0, text: str = TEXT
) -> Decoded:
    token_ids = transcript(*parts)
    return Decoded(
        token_ids=token_ids,
        sum_logprob=mean_logprob * (len(token_ids) + 1),
        text=text,
        no_speech_probability=no_speech,
    )


def attempt(one: Transcriber) -> Attempt:
    found = one.next()
    assert isinstance(found, Attempt)
    return found


def times(segments: object) -> list[tuple[float, float, str]]:
    assert isinstance(segments, list)
    return [(one.start, one.end, one.text) for one in segments]


# --- Windows --------------------------------------------------------------------------------------


def test_the_first_window_has_the_beginning() -> None:
    first = attempt(transcriber())
    assert (first.first_frame, first.frames, first.temperature) == (0, WINDOW, 0.0)
    assert first.prompt == START


def test_the_next_window_begins_where_the_last_segment_ended() -> None:
    one = transcriber()
    attempt(one)
    segments = one.accept([decoded(0.0, "ab", 8.0, 8.0, "c")])
    assert times(segments) == [(0.0, 8.0, "ab")]
    assert attempt(one).first_frame == 800


def test_times_are_of_the_recording() -> None:
    one = transcriber()
    attempt(one)
    one.accept([decoded(0.0, "ab", 30.0)])
    attempt(one)
    assert times(one.accept([decoded(1.0, "c", 5.0)])) == [(31.0, 35.0, "c")]


def test_the_last_window_has_what_is_left() -> None:
    one = transcriber(WINDOW + 70)
    attempt(one)
    one.accept([decoded(0.0, "ab", 30.0)])
    assert attempt(one).frames == 70
    one.accept([decoded(0.0, "c", 0.6)])
    assert one.next() == Finished()


def test_without_audio_there_is_nothing_to_do() -> None:
    assert transcriber(0).next() == Finished()


def test_what_to_do_can_be_asked_again() -> None:
    one = transcriber()
    assert attempt(one) is attempt(one)


def test_blank_and_empty_segments_are_left_out() -> None:
    one = transcriber()
    attempt(one)
    segments = one.accept([decoded(0.0, " ", 2.0, 2.0, "a", 4.0, 4.0)])
    assert times(segments) == [(2.0, 4.0, "a")]


# --- Prompts --------------------------------------------------------------------------------------


def test_what_was_said_is_the_next_prompt() -> None:
    one = transcriber()
    attempt(one)
    one.accept([decoded(0.0, "ab", 8.0, 8.0, "c")])
    assert attempt(one).prompt == [TOKENS.previous, *transcript(0.0, "ab", 8.0), *START]


def test_a_prompt_takes_less_than_half_of_the_places() -> None:
    one = transcriber()
    attempt(one)
    one.accept([decoded(0.0, "abcdefghijklm", 8.0, 8.0)])
    assert attempt(one).prompt == [TOKENS.previous, *transcript("fghijklm", 8.0), *START]


def test_previous_text_can_be_kept_from_the_model() -> None:
    one = transcriber(condition_on_previous_text=False, initial_prompt=[1, 2])
    assert attempt(one).prompt == [TOKENS.previous, 1, 2, *START]
    one.accept([decoded(0.0, "ab", 30.0)])
    assert attempt(one).prompt == START


def test_an_initial_prompt_comes_before_what_was_said() -> None:
    one = transcriber(initial_prompt=[1, 2])
    attempt(one)
    one.accept([decoded("ab")])
    assert attempt(one).prompt == [TOKENS.previous, 1, 2, *b"ab", *START]


def test_what_was_decoded_at_a_high_temperature_is_no_prompt() -> None:
    one = transcriber(temperatures=(0.0, 0.6))
    attempt(one)
    one.accept([decoded("a", mean_logprob=-3)])
    attempt(one)
    assert len(one.accept([decoded("b")])) == 1
    assert attempt(one).prompt == START


def test_timestamps_can_be_left_out() -> None:
    assert attempt(transcriber(timestamps=False)).prompt == [*START, TOKENS.no_timestamps]


# --- Fallback -------------------------------------------------------------------------------------


def test_what_repeats_itself_is_decoded_at_a_higher_temperature() -> None:
    one = transcriber()
    before = attempt(one)
    assert one.accept([decoded("a", text=20 * TEXT)]) == []
    after = attempt(one)
    assert (after.temperature, after.first_frame) == (0.2, before.first_frame)
    assert one.accept([decoded("b")])[0].temperature == 0.2


def test_of_what_is_never_trusted_the_likeliest_is_taken() -> None:
    one = transcriber(temperatures=(0.0, 0.5, 1.0))
    for text, logprob in (("a", -3.0), ("b", -2.0), ("c", -4.0)):
        attempt(one)
        segments = one.accept([decoded(text, mean_logprob=logprob)])
    assert [segment.text for segment in segments] == ["b"]


def test_what_repeats_itself_is_the_last_to_be_taken() -> None:
    one = transcriber(temperatures=(0.0, 0.5))
    attempt(one)
    one.accept([decoded("a", mean_logprob=-0.1, text=20 * TEXT)])
    attempt(one)
    assert one.accept([decoded("b", mean_logprob=-2.0)])[0].text == "b"


def test_of_several_candidates_the_likeliest_is_taken() -> None:
    one = transcriber()
    attempt(one)
    candidates = [decoded("a", mean_logprob=-0.9), decoded("b", mean_logprob=-0.3)]
    assert one.accept(candidates)[0].text == "b"


def test_the_end_token_speaks_for_no_candidate() -> None:
    """Its place in the mean would favour short ones."""
    one = transcriber()
    attempt(one)
    candidates = [decoded("a", mean_logprob=-0.5), decoded("bcde", mean_logprob=-0.64)]
    assert one.accept(candidates)[0].text == "bcde"


def test_silence_is_skipped() -> None:
    one = transcriber()
    attempt(one)
    assert one.accept([decoded(0.0, "a", 5.0, 5.0, mean_logprob=-2.0, no_speech=0.9)]) == []
    assert attempt(one).first_frame == WINDOW
    assert attempt(one).prompt == START


@given(st.data())
def test_any_transcripts_come_to_an_end(data: st.DataObject) -> None:
    one = transcriber(9000, temperatures=(0.0, 1.0))
    steps = 0
    ends: list[float] = []
    while not isinstance(one.next(), Finished):
        token_ids = data.draw(st.lists(st.integers(0, END + 30), max_size=5))
        made = Decoded(
            token_ids=token_ids,
            sum_logprob=data.draw(st.sampled_from([-0.1, -50.0])),
            text=TEXT,
            no_speech_probability=data.draw(st.sampled_from([0.0, 1.0])),
        )
        segments = one.accept([made])
        ends += [segment.end for segment in segments]
        steps += 1
        # A timestamp's step is 2 frames, and a window is decoded twice at most.
        assert steps <= 9000


# --- Words ----------------------------------------------------------------------------------------


def align(one: Transcriber) -> Alignment:
    found = one.next()
    assert isinstance(found, Alignment)
    return found


def spoken(text: str, start: float, end: float) -> TimedWord:
    token_ids = list(text.encode())
    return TimedWord(text=text, token_ids=token_ids, start=start, end=end, probability=0.9)


def test_words_are_asked_for_before_segments_are_final() -> None:
    one = transcriber(words=True)
    attempt(one)
    assert one.accept([decoded(0.0, " a b", 8.0, 8.0, "c")]) == []
    asked = align(one)
    assert asked.prefix == [*START, TOKENS.no_timestamps]
    assert [text for text, _ in asked.words] == [" a", " b"]
    (segment,) = one.align([spoken(" a", 0.5, 0.8), spoken(" b", 0.8, 1.2)])
    assert isinstance(segment, Segment)
    assert [(word.text, word.start, word.end) for word in segment.words] == [
        (" a", 0.5, 0.8),
        (" b", 0.8, 1.2),
    ]


@pytest.mark.parametrize(
    ("task", "words"),
    [(Task.TRANSCRIBE, [" ", "a", " ", "b", "c"]), (Task.TRANSLATE, [" a", " bc"])],
)
def test_the_words_of_a_translation_are_english(task: Task, words: list[str]) -> None:
    one = transcriber(words=True, language="zh", task=task)
    attempt(one)
    one.accept([decoded(0.0, " a bc", 8.0, 8.0, "c")])
    assert [text for text, _ in align(one).words] == words


def test_a_cut_off_window_goes_on_after_its_last_word() -> None:
    one = transcriber(words=True)
    attempt(one)
    one.accept([decoded(0.0, " a b", 8.0, 8.0, "c")])
    align(one)
    one.align([spoken(" a", 7.0, 7.3), spoken(" b", 7.3, 7.7)])
    assert attempt(one).first_frame == 770


def test_a_window_without_text_needs_no_words() -> None:
    one = transcriber(words=True)
    attempt(one)
    assert one.accept([decoded(0.0, 30.0)]) == []
    assert attempt(one).first_frame == WINDOW


# --- Streams --------------------------------------------------------------------------------------


def test_a_stream_waits_for_whole_windows() -> None:
    one = transcriber(WINDOW - 1, is_complete=False)
    assert one.next() == NeedAudio(frames=WINDOW)
    one.feed(WINDOW, is_complete=False)
    assert not attempt(one).is_partial


def test_a_stream_that_ends_is_transcribed_to_its_end() -> None:
    one = transcriber(50, is_complete=False)
    assert one.next() == NeedAudio(frames=WINDOW)
    one.feed(50, is_complete=True)
    assert attempt(one).frames == 50


def test_part_of_a_window_is_decoded_step_by_step() -> None:
    one = transcriber(500, is_complete=False, step_frames=500)
    assert (attempt(one).frames, attempt(one).is_partial) == (500, True)
    # The last segment of a window may continue in the next one.
    assert one.accept([decoded(0.0, "ab", 5.0)]) == []
    assert one.next() == NeedAudio(frames=1000)
    one.feed(1000, is_complete=False)
    assert attempt(one).frames == 1000
    assert times(one.accept([decoded(0.0, "abc", 6.0, 6.0, "d", 10.0)])) == [(0.0, 6.0, "abc")]
    assert one.next() == NeedAudio(frames=1100)


def test_without_timestamps_there_are_no_steps() -> None:
    one = transcriber(500, is_complete=False, step_frames=500, timestamps=False)
    assert one.next() == NeedAudio(frames=3000)


def test_speech_that_seems_to_end_after_what_has_arrived_waits_for_more() -> None:
    one = transcriber(500, is_complete=False, step_frames=500)
    attempt(one)
    segments = one.accept([decoded(0.0, "ab", 3.0, 3.0, "c", 8.0, 8.0, "d")])
    assert times(segments) == [(0.0, 3.0, "ab")]
    assert one.next() == NeedAudio(frames=800)


def test_words_of_part_of_a_window_end_with_what_has_arrived() -> None:
    one = transcriber(500, is_complete=False, step_frames=500, words=True)
    attempt(one)
    one.accept([decoded(0.0, " a b", 4.8, 4.8)])
    align(one)
    one.align([spoken(" a", 1.0, 2.0), spoken(" b", 4.7, 5.2)])
    assert one.next_frame == 500


def test_silence_in_part_of_a_window_waits_for_the_rest() -> None:
    one = transcriber(500, is_complete=False, step_frames=500)
    attempt(one)
    assert one.accept([decoded("a", mean_logprob=-2.0, no_speech=0.9)]) == []
    assert one.next() == NeedAudio(frames=1000)


@given(
    st.lists(st.integers(1, 2000), min_size=1, max_size=8), st.sampled_from([0.0, 1.0, 3.5, 25.0])
)
def test_a_stream_is_heard_to_its_end(pieces: list[int], end: float) -> None:
    one = transcriber(0, is_complete=False, step_frames=300)
    heard = 0
    for index, piece in enumerate(pieces):
        heard += piece
        is_complete = index == len(pieces) - 1
        one.feed(heard, is_complete=is_complete)
        while isinstance(asked := one.next(), Attempt):
            assert asked.first_frame + asked.frames <= heard
            one.accept([decoded(0.0, "ab", end, end, "c")])
            assert is_complete or one.next_frame <= heard
    assert one.next() == Finished()
    assert one.next_frame >= heard


def test_thresholds_can_be_switched_off() -> None:
    nothing = Thresholds(compression_ratio=None, mean_logprob=None, no_speech_probability=None)
    one = transcriber(thresholds=nothing)
    attempt(one)
    assert one.accept([decoded("a", mean_logprob=-9, no_speech=1.0, text=20 * TEXT)])
