"""Files of recordings come out as mono at 16 kHz, or are refused with field, limit and value."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest
import soundfile

from shaperouter_service.errors import InvalidRequestError
from shaperouter_service.speech.audio import SAMPLE_RATE, Container
from shaperouter_service.speech.audio import decode_file as decode_blocks

SECONDS = 1.5
# Where a WAV of soundfile has its number of channels, its rate, and the size of its samples.
CHANNELS_AT, RATE_AT, SIZE_AT = 22, 24, 40
# Where a WAV has its own size.
FILE_SIZE_AT = 4
# Where a FLAC has its length.
LENGTH_AT = 18
# What keeps no more than ears need.
LOSSY = {"OGG", "MP3"}


def tone(rate: int, channels: int, seconds: float = SECONDS) -> np.ndarray:
    """440 Hz, half as loud as may be, and silence in all channels but the first two."""
    time = np.arange(round(seconds * rate)) / rate
    frames = np.zeros([len(time), channels])
    frames[:, :2] = 0.5 * np.sin(2 * np.pi * 440 * time)[:, np.newaxis]
    return frames


def written(
    frames: np.ndarray, rate: int = SAMPLE_RATE, *, kind: str = "WAV", subtype: str | None = None
) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, frames, rate, format=kind, subtype=subtype)
    return file.getvalue()


WAV = written(tone(SAMPLE_RATE, 1))


def decode_file(content: bytes, declared: Container | None = None) -> np.ndarray:
    return np.concatenate(list(decode_blocks(content, declared)))


def patched(place: int, form: str, value: int) -> bytes:
    content = bytearray(WAV)
    struct.pack_into(form, content, place, value)
    return bytes(content)


def refusal(content: bytes, declared: Container | None = None) -> str:
    with pytest.raises(InvalidRequestError) as raised:
        decode_file(content, declared)
    return str(raised.value)


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_16"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "ULAW"),
        ("RF64", "PCM_16"),
        ("FLAC", "PCM_16"),
        ("OGG", "VORBIS"),
        ("MP3", None),
    ],
)
@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (16000, 2), (44100, 2), (48000, 1)])
def test_any_rate_and_channels_become_mono_at_16_khz(
    kind: str, subtype: str | None, rate: int, channels: int
) -> None:
    decoded = decode_file(written(tone(rate, channels), rate, kind=kind, subtype=subtype))
    assert decoded.dtype == np.float32
    # An MP3 has whole frames, and what its filters add before and behind.
    assert len(decoded) / SAMPLE_RATE == pytest.approx(SECONDS, abs=0.2 if kind == "MP3" else 1e-3)
    spectrum = np.abs(np.fft.rfft(decoded * np.hanning(len(decoded))))
    assert spectrum.argmax() * SAMPLE_RATE / len(decoded) == pytest.approx(440, abs=1)
    middle = decoded[len(decoded) // 4 : -len(decoded) // 4]
    assert middle.max() == pytest.approx(0.5, abs=0.1 if kind in LOSSY else 0.02)


def test_opus_is_read_too() -> None:
    content = written(tone(48000, 1), 48000, kind="OGG", subtype="OPUS")
    assert len(decode_file(content)) / SAMPLE_RATE == pytest.approx(SECONDS, abs=0.05)


def test_channels_are_mixed_evenly() -> None:
    frames = np.zeros([1000, 4])
    frames[:, 0], frames[:, 3] = 0.5, -0.25
    np.testing.assert_allclose(decode_file(written(frames)), 0.0625, atol=1e-4)


def test_samples_of_16_khz_stay_as_they_are() -> None:
    frames = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.float32)
    np.testing.assert_array_equal(decode_file(written(frames, subtype="FLOAT")), frames)


@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF])
def test_a_wav_from_a_pipe_is_read_to_its_end(size: int) -> None:
    assert len(decode_file(patched(SIZE_AT, "<I", size))) == SECONDS * SAMPLE_RATE


# As written by programs that write no size, and by those that write the header's.
@pytest.mark.parametrize("file_size", [0, SIZE_AT - FILE_SIZE_AT, 0xFFFFFFFF])
def test_a_wav_of_size_0_from_a_pipe_is_read_to_its_end(file_size: int) -> None:
    content = bytearray(patched(SIZE_AT, "<I", 0))
    struct.pack_into("<I", content, FILE_SIZE_AT, file_size)
    np.testing.assert_array_equal(decode_file(bytes(content)), decode_file(WAV))


def test_a_flac_from_a_pipe_is_read_to_its_end() -> None:
    content = bytearray(written(tone(SAMPLE_RATE, 1), kind="FLAC"))
    # Its length is in the low 36 bits of these.
    (fields,) = struct.unpack_from(">Q", content, LENGTH_AT)
    struct.pack_into(">Q", content, LENGTH_AT, fields >> 36 << 36)
    assert len(decode_file(bytes(content))) == SECONDS * SAMPLE_RATE


def varying_mp3(seconds: float) -> bytes:
    """One of variable bitrate: silence, and then noise."""
    frames = np.random.default_rng(0).uniform(-0.5, 0.5, round(seconds * SAMPLE_RATE))
    frames[: len(frames) // 2] = 0
    file = io.BytesIO()
    soundfile.write(file, frames, SAMPLE_RATE, format="MP3", bitrate_mode="VARIABLE")
    return file.getvalue()


def test_an_mp3_that_does_not_tell_its_length_is_read_to_its_end() -> None:
    content = varying_mp3(20.0)
    # Without its first frame, which is the tag.
    content = content[content.index(content[:2], 4) :]
    decoded = decode_file(content)
    assert len(decoded) / SAMPLE_RATE == pytest.approx(20.0, abs=0.2)
    assert decoded[: 9 * SAMPLE_RATE].std() < 0.01
    assert decoded[-9 * SAMPLE_RATE :].std() > 0.1


@pytest.mark.parametrize(("rate", "channels"), [(24_000, 1), (24_000, 2), (22_050, 1), (22_050, 2)])
def test_an_mp3_of_the_lowest_bitrate_is_read(rate: int, channels: int) -> None:
    file = io.BytesIO()
    soundfile.write(
        file,
        tone(rate, channels, 3.0),
        rate,
        format="MP3",
        compression_level=0.99,
        bitrate_mode="CONSTANT",
    )
    assert len(decode_file(file.getvalue())) == pytest.approx(3 * SAMPLE_RATE, abs=2_000)


def test_all_of_an_mp3_of_several_is_read() -> None:
    content = varying_mp3(5.0)
    assert len(decode_file(3 * content)) / SAMPLE_RATE == pytest.approx(15.0, abs=0.5)


def test_texts_and_pictures_between_mp3s_are_skipped() -> None:
    content = varying_mp3(5.0)
    # 300,000 bytes, in sevens of bits.
    tag = b"ID3\4\0\0" + bytes([0, 18, 39, 96]) + bytes(300_000)
    joined = tag + content + tag + content
    assert len(decode_file(joined)) / SAMPLE_RATE == pytest.approx(10.0, abs=0.5)


# 1000 bytes, in sevens of bits, without and with a footer.
ID3 = b"ID3\4\0\0" + bytes([0, 0, 7, 104]) + bytes(1000)
ID3_WITH_FOOTER = b"ID3\4\0\x10" + ID3[6:] + b"3DI\4\0\x10" + ID3[6:10]


@pytest.mark.parametrize(
    "tags",
    [ID3 + ID3, ID3_WITH_FOOTER, ID3 + ID3_WITH_FOOTER],
    ids=["two", "a footer", "two and a footer"],
)
def test_an_mp3_is_read_to_its_end_after_any_tags(tags: bytes) -> None:
    content = varying_mp3(20.0)
    frames = content[content.index(content[:2], 4) :]
    np.testing.assert_array_equal(decode_file(tags + frames), decode_file(frames))


def test_an_mp3_with_its_tag_is_decoded_as_it_always_was() -> None:
    assert len(decode_file(varying_mp3(20.0))) == 20 * SAMPLE_RATE


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_kind_may_be_declared(kind: str) -> None:
    decode_file(written(tone(SAMPLE_RATE, 1), kind=kind), Container[kind])


# --- Refusals -------------------------------------------------------------------------------------


def test_nothing_is_refused() -> None:
    assert refusal(b"") == "audio.content: must have 1 to 536870912 bytes, got 0"


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shaperouter_service.speech.audio.violations.MAX_AUDIO_BYTES", 1000)
    assert refusal(WAV) == f"audio.content: must have 1 to 1000 bytes, got {len(WAV)}"


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
def test_a_file_that_was_cut_off_is_refused(kind: str, share: float) -> None:
    content = written(tone(SAMPLE_RATE, 1), kind=kind)
    message = refusal(content[: max(16, round(share * len(content)))])
    assert message.startswith(f"audio.content: must be a complete {kind} file: ")


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "OGG", "MP3"])
def test_a_single_missing_byte_is_noticed(kind: str) -> None:
    content = written(tone(SAMPLE_RATE, 1), kind=kind)
    assert f"must be a complete {kind} file: " in refusal(content[:-1])


def test_an_rf64_that_was_cut_off_is_refused() -> None:
    content = written(tone(SAMPLE_RATE, 1), kind="RF64", subtype="PCM_16")
    assert refusal(content[:-1]) == (
        "audio.content: must be a complete WAV file: its header declares 48000 bytes of samples, "
        "got 47999"
    )


def test_a_mislabelled_file_is_refused() -> None:
    assert refusal(WAV, Container.FLAC) == (
        "audio.format: must match audio.content, which is WAV; got FLAC"
    )


@pytest.mark.parametrize(
    "content",
    [b"Salted__" + bytes(range(200)), b"FORM\0\0\0\0AIFF", b"hello world"],
    ids=["encrypted", "of another kind", "text"],
)
def test_an_unknown_kind_is_refused(content: bytes) -> None:
    assert refusal(content) == (
        "audio.content: must be in one of the formats WAV, FLAC, OGG, MP3, got a file that "
        f"begins with {content[:8].hex(' ')}"
    )


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_damage_is_refused(kind: str) -> None:
    content = bytearray(written(tone(SAMPLE_RATE, 1), kind=kind))
    beginning = {"FLAC": 8, "OGG": 28, "MP3": 0}[kind]
    noise = np.random.default_rng(0).bytes(len(content))
    content[beginning + 4 :] = noise[beginning + 4 :]
    assert f"must be a complete {kind} file: " in refusal(bytes(content))


@pytest.mark.parametrize("rate", [0, 3999, 192_001, 2**31])
def test_a_rate_over_a_limit_is_refused(rate: int) -> None:
    assert refusal(patched(RATE_AT, "<I", rate)) == (
        f"audio.content: must have 4000 to 192000 samples per second, got {rate}"
    )


@pytest.mark.parametrize("channels", [0, 9, 48])
def test_channels_over_a_limit_are_refused(channels: int) -> None:
    assert refusal(patched(CHANNELS_AT, "<H", channels)) == (
        f"audio.content: must have 1 to 8 channels, got {channels}"
    )


def test_ten_hours_in_a_small_file_are_refused_unread() -> None:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", 8000, 1, format="FLAC", subtype="PCM_16") as flac:
        minute = np.zeros(60 * 8000, np.int16)
        for _ in range(600):
            flac.write(minute)
    content = file.getvalue()
    # The frames themselves are not looked at.
    damaged = content[:1000] + bytes(len(content) - 1000)
    assert refusal(damaged) == "audio.content: must last at most 7200 seconds, got 36000.0"


@pytest.mark.parametrize(
    ("value", "told"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (1e30, "1e+30")]
)
def test_samples_that_are_no_samples_are_refused(value: float, told: str) -> None:
    frames = tone(SAMPLE_RATE, 2)
    frames[4000, 1] = value
    assert refusal(written(frames, subtype="FLOAT")) == (
        f"audio.content: samples must be numbers from -32768 to 32768, got {told} at 0.250 seconds"
    )


def test_silence_is_refused() -> None:
    assert refusal(written(np.zeros(4000))) == (
        "audio.content: must have a sample other than 0, got 4000 samples that are all 0"
    )


def test_a_file_without_samples_is_refused() -> None:
    assert refusal(WAV[:36]).startswith("audio.content: must be a complete WAV file: it has no sam")


def test_texts_after_no_samples_are_not_taken_for_samples() -> None:
    text = b"LIST" + struct.pack("<I", 100) + bytes(range(100))
    header = bytearray(WAV[: SIZE_AT + 4] + text)
    struct.pack_into("<I", header, SIZE_AT, 0)
    struct.pack_into("<I", header, FILE_SIZE_AT, len(header) - 8)
    assert refusal(bytes(header)).endswith("got 0 samples that are all 0")


def test_a_wav_of_empty_chunks_is_refused() -> None:
    assert refusal(WAV[:36] + 2000 * (b"junk" + bytes(4)) + WAV[36:]) == (
        "audio.content: must have at most 1000 chunks, got more"
    )


@pytest.mark.parametrize("kind", ["FLAC", "OGG"])
def test_a_second_stream_is_not_left_out_in_silence(kind: str) -> None:
    content = written(tone(SAMPLE_RATE, 1), kind=kind)
    assert refusal(content + content) == (
        "audio.content: must have one stream, got another at byte "
        f"{len(content)} of the {kind} file"
    )


def test_a_damaged_mp3_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    content = bytearray(written(tone(SAMPLE_RATE, 1, seconds=10.0), kind="MP3"))
    for place in range(500, len(content), 97):
        content[place] ^= 0x5A
    refusal(bytes(content))
    assert capfd.readouterr().err == ""


def test_empty_tags_are_not_skipped_for_long() -> None:
    content = (b"ID3\4\0\0" + bytes(4)) * 101 + varying_mp3(5.0)
    assert "must be a complete MP3 file: " in refusal(content)


def test_places_that_only_look_like_frames_are_not_searched_for_long() -> None:
    content = written(tone(SAMPLE_RATE, 1), kind="MP3")
    assert refusal(content + b"\xff\xfb" * 200_000) == (
        "audio.content: must have at most 100000 places that look like an MP3 frame but are "
        "not, got more"
    )
