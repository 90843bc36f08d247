"""The command that transcribes, against a service that plays a script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from harness.waiting import TIMEOUT
from shaperouter._cli._main import cli
from shaperouter.v1 import transcription_pb2

if TYPE_CHECKING:
    from harness.fake_transcriber import FakeTranscriber

COMMAND = Path(sys.executable).with_name("shaperouter")


def run(transcriber: FakeTranscriber, *arguments: str, stdin: bytes | None = None) -> Result:
    options = ["--address", transcriber.address, "--timeout", str(TIMEOUT)]
    return CliRunner().invoke(cli, [*options, "transcribe", *arguments], input=stdin)


def test_command_prints_lines_of_text(transcriber: FakeTranscriber, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    result = run(transcriber, str(tmp_path / "a.wav"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello\nthere.\n", "")
    assert transcriber.pieces == [b"RIFF"]


def test_command_reads_a_pipe(transcriber: FakeTranscriber) -> None:
    result = run(
        transcriber, "-", "--audio-format", "pcm_s16le", "--sample-rate", "16000", stdin=b"samples"
    )
    assert result.exit_code == 0, result.stderr
    assert b"".join(transcriber.pieces) == b"samples"
    assert transcriber.starts[0].audio.sample_rate == 16000


def test_command_ends_with_its_call_while_stdin_is_open(transcriber: FakeTranscriber) -> None:
    transcriber.losses = 1
    with subprocess.Popen(
        [COMMAND, "transcribe", "-", "--address", transcriber.address],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=0,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("samples")
        process.stdin.flush()
        assert process.wait(TIMEOUT) == 1
        assert process.stderr.read() == "Error: shutting down\n"


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["--word-timestamps"], ["     0.00      1.00  Hello", "     2.00      3.00  there."]),
        (
            ["--format", "srt"],
            [
                *("1", "00:00:00,000 --> 00:00:01,000", "Hello", ""),
                *("2", "00:00:02,000 --> 00:00:03,000", "there.", ""),
            ],
        ),
        (
            ["--format", "vtt"],
            [
                *("WEBVTT", "", "00:00:00.000 --> 00:00:01.000", "Hello", ""),
                *("00:00:02.000 --> 00:00:03.000", "there.", ""),
            ],
        ),
    ],
)
def test_command_prints_words_and_subtitles(
    transcriber: FakeTranscriber, arguments: list[str], printed: list[str]
) -> None:
    assert run(transcriber, "-", *arguments, stdin=b"x").stdout.splitlines() == printed


@pytest.mark.parametrize("arguments", [["--format", "json"], ["--json"]])
def test_command_prints_json(transcriber: FakeTranscriber, arguments: list[str]) -> None:
    printed = json.loads(run(transcriber, "-", *arguments, stdin=b"x").stdout)
    assert printed["text"] == "Hello there."
    assert printed["segments"][0]["words"][0]["text"] == " Hello"


def test_command_sends_every_option(transcriber: FakeTranscriber) -> None:
    options = (
        "--language de --task translate --word-timestamps --no-timestamps --initial-prompt Zoë "
        "--no-condition-on-previous-text --temperature 0 --temperature 0.5 --num-beams 4 "
        "--best-of 2 --compression-ratio-threshold 3 --logprob-threshold -2 "
        "--no-speech-threshold 0.5 --seed 3 --step-seconds 2 --channels 2"
    )
    result = run(transcriber, "-", *options.split(), stdin=b"x")
    assert result.exit_code == 0, result.stderr
    (start,) = transcriber.starts
    assert start.options == transcription_pb2.TranscriptionOptions(
        language="de",
        task=transcription_pb2.TRANSCRIPTION_TASK_TRANSLATE,
        word_timestamps=True,
        timestamps=False,
        initial_prompt="Zoë",
        condition_on_previous_text=False,
        temperatures=[0.0, 0.5],
        num_beams=4,
        best_of=2,
        compression_ratio_threshold=3.0,
        logprob_threshold=-2.0,
        no_speech_threshold=0.5,
        seed=3,
    )
    assert (start.step_seconds, start.audio.channels) == (2.0, 2)


def test_word_timestamps_are_refused_for_subrip(transcriber: FakeTranscriber) -> None:
    result = run(transcriber, "-", "--format", "srt", "--word-timestamps", stdin=b"x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--word-timestamps cannot be used with --format srt" in result.stderr
    assert not transcriber.starts
