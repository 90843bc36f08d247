"""docs/limits.md has the limits that the code enforces."""

from pathlib import Path

import pytest

from shaperouter_service.edge.http.connection import MAX_HEAD_BYTES
from shaperouter_service.edge.http.openai.requests import MAX_PROMPTS
from shaperouter_service.edge.inference.grpc.servicer import MAX_STREAMS
from shaperouter_service.edge.inference.grpc.side_by_side import MAX_REQUESTS
from shaperouter_service.edge.inference.http.bodies import MAX_JSON_BYTES
from shaperouter_service.errors import MAX_VIOLATIONS, MAX_VIOLATIONS_SHOWN
from shaperouter_service.generation import limits
from shaperouter_service.inference.limits import (
    MAX_PADDED_TOKENS,
    MAX_TENSOR_REQUEST_BYTES,
    MAX_TEXTS,
)
from shaperouter_service.routing.aliases import MAX_TARGETS
from shaperouter_service.rpc.server import MAX_MESSAGE_BYTES
from shaperouter_service.serving.generation.kept_logprobs import LOGPROB_BYTES
from shaperouter_service.serving.inference.preparation import MAX_ANSWER_BYTES
from shaperouter_service.speech.audio import limits as audio
from shaperouter_service.system.strict_json import MAX_DEPTH
from shaperouter_service.tensors.shapes import MAX_DIMENSIONS, MAX_TENSOR_BYTES, MAX_TENSORS
from shaperouter_service.text.chat_template import MAX_RENDER_SECONDS
from shaperouter_service.text.grammar_process import MAX_SECONDS
from shaperouter_service.text.token_masks import TOKEN_SECONDS

PAGE = (Path(__file__).parents[3] / "docs" / "limits.md").read_text(encoding="utf-8")
MIB = 2**20


@pytest.mark.parametrize(
    "row",
    [
        f"gRPC | {limits.MAX_TEXT_REQUEST_BYTES // MIB} MiB; {MAX_MESSAGE_BYTES // MIB} MiB if",
        f"; {MAX_TENSOR_REQUEST_BYTES // MIB} MiB if the service serves a function",
        f"a file of {audio.MAX_AUDIO_BYTES // MIB} MiB",
        f"{MAX_JSON_BYTES // MIB} MiB of it JSON",
        f"brackets in JSON | nested {MAX_DEPTH} deep",
        f"headers over HTTP | {MAX_HEAD_BYTES // 1024} KiB",
        f"{MAX_VIOLATIONS} in its details, {MAX_VIOLATIONS_SHOWN} in its message",
        f"prompt | {limits.MIN_CHARACTERS_PER_TOKEN} for each token",
        f"conversation | {limits.MAX_MESSAGES:,} |",
        f"tools of a request | {limits.MAX_TOOLS:,} |",
        f"OpenAI's API | {MAX_PROMPTS} |",
        f"sequences of a request | {limits.MAX_RETURN_SEQUENCES} |",
        f"stop strings | {limits.MAX_STOP}, of {limits.MAX_STOP_CHARACTERS} characters",
        f"banned words | {limits.MAX_BIASES}, of {limits.MAX_BIAS_TOKENS} tokens",
        f"end tokens | {limits.MAX_EOS_TOKENS} |",
        f"log-probabilities | {limits.MAX_TOP_LOGPROBS} |",
        f"grammar | {limits.MAX_CONSTRAINT_CHARACTERS:,} characters, and {MAX_SECONDS:g} s",
        f"follow a constraint | {1000 * TOKEN_SECONDS:g} ms for each token",
        f"choices | {limits.MAX_CHOICES} |",
        f"chat template | {MAX_RENDER_SECONDS:g} s |",
        f"tensors of a request | {MAX_TENSORS:,}, of {MAX_DIMENSIONS} dimensions",
        f"a tensor | {MAX_TENSOR_BYTES // MIB} MiB |",
        f"answer | {MAX_ANSWER_BYTES // MIB} MiB together",
        f"texts of a call | {MAX_TEXTS:,};",
        f"longest | {MAX_PADDED_TOKENS:,} |",
        f"recording | {audio.MAX_AUDIO_SECONDS // 3600} hours, {audio.MAX_AUDIO_CHANNELS} channels",
        f"{audio.MIN_SAMPLE_RATE:,} to {audio.MAX_SAMPLE_RATE:,} samples",
        f"not streamed ({LOGPROB_BYTES} bytes for each token",
        f"temperatures of a transcription | {limits.MAX_TEMPERATURES} |",
        f"Open Inference Protocol | {MAX_STREAMS:,}, of {MAX_REQUESTS} requests",
        f"one call warms | {limits.MAX_WARM_SIGNATURES:,} |",
        f"models of an alias | {MAX_TARGETS} |",
    ],
)
def test_the_page_has_the_limit(row: str) -> None:
    assert row in PAGE
