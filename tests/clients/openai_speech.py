"""Transcribes a recording with OpenAI's client, and prints what it got as JSON.

Run as `python openai_speech.py URL MODEL RECORDING OPTIONS`, in an environment that has only
`openai`. OPTIONS are fields that the client has no arguments for, as JSON.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import openai

Speech = Any


def formats(speech: Speech, asked: dict[str, Any]) -> dict[str, Any]:
    """The transcript in every format; of the objects, all their fields."""
    found = {}
    for name in ("json", "text", "srt", "vtt", "verbose_json"):
        transcript = speech.create(**asked, response_format=name)
        found[name] = transcript if isinstance(transcript, str) else transcript.model_dump()
    return found


def words(client: openai.OpenAI, asked: dict[str, Any]) -> list[list[Any]]:
    """The words and their times."""
    transcript = client.audio.transcriptions.create(
        **asked, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    return [[word.word, word.start, word.end] for word in transcript.words or ()]


def streamed(client: openai.OpenAI, asked: dict[str, Any]) -> list[list[str]]:
    """The events of a stream: their types and texts."""
    with client.audio.transcriptions.create(**asked, stream=True) as events:
        return [
            [event.type, event.delta if event.type == "transcript.text.delta" else event.text]
            for event in events
        ]


async def text(url: str, asked: dict[str, Any]) -> str:
    """The text, through the asynchronous client."""
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        return (await client.audio.transcriptions.create(**asked)).text


def refused(client: openai.OpenAI, asked: dict[str, Any]) -> list[Any]:
    """The error about a recording that is not a recording."""
    try:
        client.audio.transcriptions.create(**asked | {"file": ("a.wav", b"no recording")})
    except openai.BadRequestError as error:
        return [type(error).__name__, error.param]
    return []


if __name__ == "__main__":
    url, model, path, options = sys.argv[1:]
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
    asked: dict[str, Any] = {"model": model, "file": Path(path), "extra_body": json.loads(options)}
    found = {
        "transcriptions": formats(client.audio.transcriptions, asked),
        "translations": formats(client.audio.translations, asked),
        "words": words(client, asked),
        "streamed": streamed(client, asked),
        "asynchronous": asyncio.run(text(url, asked)),
        "refused": refused(client, asked),
    }
    json.dump(found, sys.stdout)
