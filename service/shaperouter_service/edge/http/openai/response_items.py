"""The input of a response as a conversation."""

from collections.abc import Mapping
from typing import Any

from shaperouter_service.edge.http.openai.fields import Fields, told
from shaperouter_service.edge.http.openai.messages import parsed_arguments, tool_call

_ROLES = ("user", "assistant", "system", "developer")
# Parts of messages, by the role of who wrote them.
_INPUT_PARTS, _OUTPUT_PARTS = ("input_text",), ("output_text", "input_text")


def take_conversation(fields: Fields) -> list[dict[str, Any]]:
    """Takes `instructions` and `input`, as messages that templates read."""
    instructions = fields.text("instructions")
    messages = [{"role": "system", "content": instructions}] if instructions else []
    given = fields.take("input")
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        fields.refuse("input", f"must be a text or a list of items, got {told(given)}")
        return messages
    items = _Items(fields)
    for index, item in enumerate(given):
        items.add(f"input[{index}]", item if isinstance(item, dict) else {"type": item})
    return messages + items.messages


class _Items:
    """Makes messages of items: a model's reasoning, text and calls are one message."""

    def __init__(self, fields: Fields) -> None:
        self.messages: list[dict[str, Any]] = []
        self._fields = fields
        # The message of the model to which its next item belongs.
        self._answer: dict[str, Any] | None = None

    def add(self, place: str, item: Mapping[str, Any]) -> None:
        match item.get("type"):
            case None | "message":
                self._add_message(place, item)
            case "reasoning":
                self._add_reasoning(place, item)
            case "function_call":
                self._add_call(place, item)
            case "function_call_output":
                self._add_output(place, item)
            case kind:
                known = "'message', 'reasoning', 'function_call' or 'function_call_output'"
                self._fields.refuse(f"{place}.type", f"must be {known}, got {told(kind)}")

    def _add_message(self, place: str, item: Mapping[str, Any]) -> None:
        role = item.get("role")
        if role not in _ROLES:
            rule = f"must be one of {', '.join(_ROLES)}"
            self._fields.refuse(f"{place}.role", f"{rule}, got {told(role)}")
            return
        is_answer = role == "assistant"
        kinds = _OUTPUT_PARTS if is_answer else _INPUT_PARTS
        text = self._text(f"{place}.content", item.get("content"), kinds)
        if not is_answer:
            self._answer = None
            self.messages.append({"role": role, "content": text})
        elif self._answer is None or self._answer["content"] or "tool_calls" in self._answer:
            self._begin_answer()["content"] = text
        else:
            self._answer["content"] = text

    def _add_reasoning(self, place: str, item: Mapping[str, Any]) -> None:
        for name in ("encrypted_content", "summary"):
            if item.get(name):
                rule = "is not supported: reasoning is in content, as text"
                self._fields.refuse(f"{place}.{name}", f"{rule}, got {told(item[name])}")
        content = item.get("content") or []
        text = self._text(f"{place}.content", content, ("reasoning_text",))
        self._begin_answer()["reasoning_content"] = text

    def _add_call(self, place: str, item: Mapping[str, Any]) -> None:
        name, call_id = self._name(place, item, "name"), self._name(place, item, "call_id")
        given = item.get("arguments")
        arguments = parsed_arguments(self._fields, f"{place}.arguments", given)
        answer = self._answer or self._begin_answer()
        answer.setdefault("tool_calls", []).append(tool_call(call_id, name, arguments))

    def _add_output(self, place: str, item: Mapping[str, Any]) -> None:
        self._answer = None
        call_id = self._name(place, item, "call_id")
        text = self._text(f"{place}.output", item.get("output"), _INPUT_PARTS)
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def _begin_answer(self) -> dict[str, Any]:
        self._answer = {"role": "assistant", "content": ""}
        self.messages.append(self._answer)
        return self._answer

    def _name(self, place: str, item: Mapping[str, Any], name: str) -> str:
        value = item.get(name)
        if isinstance(value, str) and value:
            return value
        rule = "must be a text that is not empty"
        self._fields.refuse(f"{place}.{name}", f"{rule}, got {told(value)}")
        return ""

    def _text(self, place: str, content: Any, kinds: tuple[str, ...]) -> str:
        """The text of a content: a text, or a list of parts with text."""
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            self._fields.refuse(place, f"must be a text or a list of parts, got {told(content)}")
            return ""
        texts = []
        for index, part in enumerate(content):
            kind = part.get("type") if isinstance(part, dict) else part
            if kind not in kinds:
                rule = f"must be of type '{kinds[0]}', as models here read nothing else"
                self._fields.refuse(f"{place}[{index}]", f"{rule}, got {told(kind)}")
            elif not isinstance(part.get("text"), str):
                rule = "must be a text"
                self._fields.refuse(f"{place}[{index}].text", f"{rule}, got {told(part)}")
            else:
                texts.append(part["text"])
        return "\n".join(texts)
