"""Windows of a recording are the same whether it arrives whole or in pieces."""

from __future__ import annotations

import numpy as np
import pytest

from shaperouter_service.speech.audio.recording import Recording
from shaperouter_service.speech.audio.spectrum import (
    HEADER,
    HOP_SAMPLES,
    SAMPLES_BEFORE,
    cut_window,
    peak_log_power,
)

BANDS, WINDOW = 80, 100
SAMPLES = (0.1 * np.random.default_rng(0).standard_normal(500 * HOP_SAMPLES + 77)).astype(
    np.float32
)


def complete(samples: np.ndarray = SAMPLES) -> Recording:
    recording = Recording(bands=BANDS, window_frames=WINDOW)
    recording.append(samples)
    recording.finish()
    return recording


def expected(first_frame: int) -> np.ndarray:
    return cut_window(SAMPLES, first_frame * HOP_SAMPLES, WINDOW * HOP_SAMPLES)


@pytest.mark.parametrize("first_frame", [0, 1, 250, 480])
def test_a_window_has_what_lies_around_it(first_frame: int) -> None:
    window = complete().window(first_frame, 20)
    np.testing.assert_array_equal(window[HEADER:], expected(first_frame))
    assert window[:HEADER].tolist() == pytest.approx([peak_log_power(SAMPLES, BANDS), 20])


def test_a_short_recording_is_as_loud_as_it_is() -> None:
    window = complete(SAMPLES[:1000]).window(0, 6)
    assert window[:HEADER].tolist() == pytest.approx([peak_log_power(SAMPLES[:1000], BANDS), 6])
    assert not window[HEADER + SAMPLES_BEFORE + 1000 :].any()


@pytest.mark.parametrize("piece", [700, 16_000])
def test_pieces_make_the_same_windows_though_what_was_heard_is_forgotten(piece: int) -> None:
    recording = Recording(bands=BANDS, window_frames=WINDOW)
    first_frame = 0
    for start in range(0, len(SAMPLES), piece):
        recording.append(SAMPLES[start : start + piece])
        while recording.frames >= first_frame + WINDOW + 2:
            window = recording.window(first_frame, WINDOW)
            np.testing.assert_array_equal(window[HEADER:], expected(first_frame))
            first_frame += 37
            recording.drop_before(first_frame)
    recording.finish()
    window = recording.window(480, 20)
    np.testing.assert_array_equal(window[HEADER:], expected(480))
    assert window[0] == pytest.approx(peak_log_power(SAMPLES, BANDS))


def test_no_more_is_kept_than_two_windows_and_what_came_last() -> None:
    recording = Recording(bands=BANDS, window_frames=WINDOW)
    for frame in range(0, 10 * WINDOW, 10):
        recording.append(SAMPLES[: 10 * HOP_SAMPLES])
        recording.drop_before(frame)
    assert len(recording._samples) <= 2 * WINDOW * HOP_SAMPLES
    assert recording.seconds == 10.0


def test_frames_that_lack_what_follows_are_not_certain() -> None:
    recording = Recording(bands=BANDS, window_frames=WINDOW)
    recording.append(SAMPLES[: 10 * HOP_SAMPLES])
    assert recording.frames == 8
    recording.finish()
    assert recording.frames == 10


def test_what_is_forgotten_ends_with_what_there_is() -> None:
    """A timestamp may lie beyond the end of an unfinished recording."""
    recording = Recording(bands=80, window_frames=10)
    recording.append(np.ones(30 * HOP_SAMPLES, np.float32))
    recording.drop_before(50)
    assert recording.seconds == pytest.approx(0.3)
    recording.append(np.ones(30 * HOP_SAMPLES, np.float32))
    recording.finish()
    assert recording.frames == 60
    assert recording.window(50, 10)[2:].any()
