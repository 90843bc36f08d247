"""The demo of transcription: starts a service with Whisper tiny.en, and sends it speech.

`make demo-whisper` runs it. espeak-ng reads a text; its samples go to the service no faster than
they are spoken, and segments are printed as they become final.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path

from speech import espeak, weights

from service import console, service
from shaperouter import AudioFormat, Client

SPOKEN = 6  # sentences
PIECE_SECONDS = 0.25
# Seconds after which an incomplete window is decoded again.
STEP_SECONDS = 2.0


def live(path: Path) -> Iterator[bytes]:
    """The samples of a WAV file, as fast as they are spoken."""
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        started, sent = time.monotonic(), 0
        while piece := file.readframes(int(PIECE_SECONDS * rate)):
            sent += len(piece) // file.getsampwidth()
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))
            yield piece


def main() -> None:
    """Runs the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="Directory for what is made.")
    work: Path = parser.parse_args().work
    work.mkdir(parents=True, exist_ok=True)
    espeak.have_espeak()
    _, model = weights.fetch(work)
    speech, text = work / "demo.wav", " ".join(espeak.SENTENCES[:SPOKEN])
    espeak.say(text, speech)
    with wave.open(str(speech)) as file:
        rate = file.getframerate()
    with (
        tempfile.TemporaryDirectory() as cache,
        service(cache, f"--model=whisper={model.resolve()}") as addresses,
        Client(addresses.grpc) as client,
    ):
        console.print(f"\nespeak-ng says:\n[dim]{text}[/dim]\n\nWhisper hears, while it speaks:")
        started = time.monotonic()
        stream = client.transcribe_stream(
            live(speech),
            audio_format=AudioFormat.PCM_S16LE,
            sample_rate=rate,
            step_seconds=STEP_SECONDS,
        )
        with stream:
            for segment in stream:
                console.print(
                    f"[dim]{time.monotonic() - started:5.1f} s[/dim]  "
                    f"[dim]{segment.start_seconds:5.1f} – {segment.end_seconds:5.1f}[/dim] "
                    f"[bold]{segment.text.strip()}[/bold]"
                )
        result = stream.result
        console.print(f"The device was busy for {result.device_seconds:.1f} s of them.")

        console.print("\nThe same as a file, with the times of its words:")
        command = ["shaperouter", "--address", addresses.grpc, "transcribe", str(speech)]
        console.print(f"[dim]$ shaperouter transcribe {speech} --format srt[/dim]")
        subprocess.run([*command, "--format", "srt"], check=True)
        whole = client.transcribe(speech, word_timestamps=True)
        words = [word for segment in whole.segments for word in segment.words][:8]
        console.print(
            " ".join(f"{word.text.strip()}[dim]@{word.start_seconds:.2f}[/dim]" for word in words)
        )
        console.print(
            f"{whole.audio_seconds:.1f} s of speech in {whole.total_seconds:.2f} s: "
            f"{whole.real_time_factor:.3f} of real time."
        )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
