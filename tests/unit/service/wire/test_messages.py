"""Messages: what is sent is what arrives."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.transcripts import TOKENS
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.speech.transcription import TranscriptSettings
from shaperouter_service.wire.ladders import ladders_from_message, ladders_to_message
from shaperouter_service.wire.transcript_settings import (
    transcript_settings_from_message,
    transcript_settings_to_message,
)


@given(
    max_length=st.integers(1, 8192),
    slots=st.integers(1, 64),
    prefill_piece=st.integers(1, 512),
    max_source_length=st.integers(0, 4096),
    has_whole_source=st.booleans(),
    has_transcript=st.booleans(),
)
def test_ladders_arrive_as_they_were_sent(**settings: Any) -> None:
    ladders = Ladders.default(**settings)
    assert ladders_from_message(ladders_to_message(ladders)) == ladders


def test_how_transcripts_are_made_arrives_as_it_was_sent() -> None:
    settings = TranscriptSettings(
        tokens=TOKENS,
        suppressed=(1, 2, 3),
        begin_suppressed=(4,),
        last_initial_timestamp=TOKENS.first_timestamp + 50,
        mel_bands=80,
        window_frames=3000,
    )
    assert transcript_settings_from_message(transcript_settings_to_message(settings)) == settings
