"""A model that holds conversations, behind the HTTP port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2 as httpx
import pytest

from harness.waiting import TIMEOUT
from shaperouter.v1 import generation_pb2

if TYPE_CHECKING:
    from harness.fake_worker import FakeWorker
    from harness.router import Play, Router
    from shaperouter_service.text import Tokenizer

# Its comment makes it the template of a model that thinks, and that writes calls as Qwen does.
TEMPLATE = """\
{#- <tool_call> </think> #}
{%- for tool in tools or [] %}{{ tool.function.name }} {% endfor %}
{%- for message in messages -%}
{{ message.role }}:{{ message.content }}{{ message.reasoning_content }}
{%- for call in message.tool_calls or [] %}{{ call.id }}{{ call.function.arguments.a }}{% endfor %}|
{%- endfor %}{{ '<think>' if enable_thinking }}"""


class Talk:
    """An HTTP client, the worker that answers it, and what to look at.

    Attributes:
        client: The client.
        router: The router.
        worker: The worker.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        router: Router,
        worker: FakeWorker,
        tokenizer: Tokenizer,
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self.client, self.router, self.worker = client, router, worker
        self._decode = tokenizer.decode
        self._encode = encode

    def answers(
        self, text: str, reason: generation_pb2.FinishReason = generation_pb2.FINISH_REASON_EOS
    ) -> None:
        """Lets the worker write a text from now on, token by token."""
        tokens = [self.worker.tokens(token) for token in self._encode(text)]
        self.worker.script = [*tokens, self.worker.completion(reason)]

    @property
    def prompt(self) -> str:
        """The last prompt."""
        return self._decode(self.worker.requests[-1].token_ids)


@pytest.fixture
def talk(
    play: Play,
    sockets: Path,
    checkpoint: Path,
    tokenizer: Tokenizer,
    encode: Callable[[str], Sequence[int]],
) -> Iterator[Callable[..., None]]:
    """Plays a scenario of a `Talk`, at a Unix socket unless `http_listen` is an address."""
    path = sockets / "http"
    template = checkpoint / "chat_template.jinja"
    template.write_text(TEMPLATE)

    def run(
        scenario: Callable[[Talk], Awaitable[None]],
        http_listen: str = f"unix:{path}",
        **others: Any,
    ) -> None:
        async def with_client(router: Router, worker: FakeWorker) -> None:
            transport = httpx.AsyncHTTPTransport(uds=str(path))
            async with httpx.AsyncClient(
                transport=transport, base_url="http://router", timeout=TIMEOUT
            ) as client:
                await scenario(Talk(client, router, worker, tokenizer, encode))

        play(with_client, settings={"http_listen": http_listen}, **others)

    yield run
    template.unlink()
