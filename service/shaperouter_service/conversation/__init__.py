"""What models write in conversations: text, reasoning and calls of tools, by chat template."""

from shaperouter_service.conversation.formats import CallFormat, MessageFormat, message_format
from shaperouter_service.conversation.parts import (
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCall,
    joined,
)
from shaperouter_service.conversation.reader import MessageReader, MessageRules
from shaperouter_service.conversation.template_names import TemplateNames, template_names

__all__ = [
    "CallFormat",
    "MessageFormat",
    "MessagePart",
    "MessageReader",
    "MessageRules",
    "ReasoningPart",
    "TemplateNames",
    "TextPart",
    "ToolCall",
    "joined",
    "message_format",
    "template_names",
]
