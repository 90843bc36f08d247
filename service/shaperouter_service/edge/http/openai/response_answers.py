"""Responses and their events."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from shaperouter_service.conversation import MessagePart, ReasoningPart, TextPart, ToolCall
from shaperouter_service.edge.http.openai.answers import Usage, call_id
from shaperouter_service.generation.run_events import FinishReason

_IN_PROGRESS, _COMPLETED, _INCOMPLETE = "in_progress", "completed", "incomplete"


@dataclass(kw_only=True)
class _Item:
    """One item of a response's output, which grows.

    Attributes:
        id: Its id.
        kind: Its type.
        status: Its status.
        text: Its text, or the arguments of a call.
        name: Name of the tool that it calls.
        call_id: Id of the call.
    """

    id: str
    kind: str
    status: str = _IN_PROGRESS
    text: str = ""
    name: str = ""
    call_id: str = ""

    @property
    def part_kind(self) -> str:
        """Type of the item's only part."""
        return "reasoning_text" if self.kind == "reasoning" else "output_text"

    def part(self) -> dict[str, Any]:
        """The only part of a message or a reasoning."""
        part: dict[str, Any] = {"type": self.part_kind, "text": self.text}
        return part if self.kind == "reasoning" else part | {"annotations": [], "logprobs": []}

    def body(self, *, is_begun: bool = True) -> dict[str, Any]:
        """The item as OpenAI's API has it; without its part if that has not begun."""
        common = {"id": self.id, "type": self.kind, "status": self.status}
        if self.kind == "function_call":
            return {**common, "call_id": self.call_id, "name": self.name, "arguments": self.text}
        content = [self.part()] if is_begun else []
        if self.kind == "reasoning":
            return {**common, "summary": [], "content": content}
        return {**common, "role": "assistant", "content": content}


class ResponseWriter:
    """Writes one response as events. The events build the response, streamed or not.

    Attributes:
        usage: Numbers of tokens, once it has ended.
        has_begun: Whether it has its first events.
    """

    def __init__(self, *, response_id: str, model: str, repeated: Mapping[str, Any]) -> None:
        """Starts an empty response.

        Args:
            response_id: Its id.
            model: Name of the model.
            repeated: Fields of the request that it repeats.
        """
        self.usage = Usage()
        self.has_begun = False
        self._id = response_id
        self._model = model
        self._repeated = repeated
        self._created = int(time.time())
        self._status = _IN_PROGRESS
        self._error: dict[str, Any] | None = None
        self._items: list[_Item] = []
        self._is_open = False
        self._sequence_number = 0

    def begin(self) -> Iterator[dict[str, Any]]:
        """The first events."""
        self.has_begun = True
        for kind in ("created", _IN_PROGRESS):
            yield self._event(f"response.{kind}", response=self.body())

    def write(self, parts: Sequence[MessagePart]) -> Iterator[dict[str, Any]]:
        """The events of further parts."""
        for part in parts:
            match part:
                case TextPart(text):
                    yield from self._add("message", "msg", text)
                case ReasoningPart(text):
                    yield from self._add("reasoning", "rs", text)
                case ToolCall():
                    yield from self._call(part)

    def end(self, reason: FinishReason) -> Iterator[dict[str, Any]]:
        """The last events."""
        is_cut = reason is FinishReason.LENGTH
        if not self._items:
            yield from self._open(_Item(id=_new_id("msg"), kind="message"))
        yield from self._close(_INCOMPLETE if is_cut else _COMPLETED)
        self._status = _INCOMPLETE if is_cut else _COMPLETED
        yield self._event(f"response.{self._status}", response=self.body())

    def fail(self, code: str, message: str, hint: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """The last events of a response that cannot be completed.

        Args:
            code: OpenAI's code of the error.
            message: What is wrong.
            hint: When to try again; see `retry_hint`.
        """
        if not self.has_begun:
            # Clients refuse any other first event.
            yield from self.begin()
        self._status, self._error = "failed", {"code": code, "message": message, **hint}
        yield self._event("response.failed", response=self.body())

    def body(self) -> dict[str, Any]:
        """The response as far as it is written."""
        is_over = self._status != _IN_PROGRESS
        is_cut = self._status == _INCOMPLETE
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if self._status == _COMPLETED else None,
            "status": self._status,
            "background": False,
            "error": self._error,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "max_tool_calls": None,
            "model": self._model,
            "output": [item.body() for item in self._items],
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "top_logprobs": 0,
            "truncation": "disabled",
            "usage": self.usage.response_body() if is_over and not self._error else None,
            **self._repeated,
        }

    def _add(self, kind: str, prefix: str, text: str) -> Iterator[dict[str, Any]]:
        if not self._is_open or self._items[-1].kind != kind:
            yield from self._close(_COMPLETED)
            yield from self._open(_Item(id=_new_id(prefix), kind=kind))
        item = self._items[-1]
        item.text += text
        yield self._text_event("delta", delta=text)

    def _call(self, call: ToolCall) -> Iterator[dict[str, Any]]:
        yield from self._close(_COMPLETED)
        yield from self._open(
            _Item(id=_new_id("fc"), kind="function_call", name=call.name, call_id=call_id())
        )
        self._items[-1].text = call.arguments
        yield self._item_event("response.function_call_arguments.delta", delta=call.arguments)
        yield from self._close(_COMPLETED)

    def _open(self, item: _Item) -> Iterator[dict[str, Any]]:
        self._items.append(item)
        self._is_open = True
        body = item.body(is_begun=False)
        yield self._event("response.output_item.added", output_index=self._index, item=body)
        if item.kind != "function_call":
            part = item.part()
            yield self._item_event("response.content_part.added", content_index=0, part=part)

    def _close(self, status: str) -> Iterator[dict[str, Any]]:
        if not self._is_open:
            return
        item = self._items[-1]
        if item.kind == "function_call":
            done = {"name": item.name, "arguments": item.text}
            yield self._item_event("response.function_call_arguments.done", **done)
        else:
            yield self._text_event("done", text=item.text)
            part = item.part()
            yield self._item_event("response.content_part.done", content_index=0, part=part)
        item.status = status
        self._is_open = False
        body = item.body()
        yield self._event("response.output_item.done", output_index=self._index, item=body)

    @property
    def _index(self) -> int:
        return len(self._items) - 1

    def _text_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        item = self._items[-1]
        if item.kind != "reasoning":
            fields["logprobs"] = []
        return self._item_event(f"response.{item.part_kind}.{kind}", content_index=0, **fields)

    def _item_event(self, kind: str, **fields: Any) -> dict[str, Any]:
        item = self._items[-1]
        return self._event(kind, item_id=item.id, output_index=self._index, **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        number = self._sequence_number
        self._sequence_number += 1
        return {"type": kind, "sequence_number": number, **fields}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex}"
