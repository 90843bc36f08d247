"""Rendering of conversations by the chat templates of checkpoints."""

import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from shaperouter_service.errors import shortened
from shaperouter_service.generation.chat import Chat
from shaperouter_service.text.chat_adaptation import ChatTemplateError

# Maximum seconds of CPU time that a template may take. Published ones take some milliseconds.
MAX_RENDER_SECONDS = 2.0

# Maximum characters of a template's message in an error.
_SHOWN = 500


# A message whose two forms show whether a template takes lists of parts.
_PROBE = "a text"


def render_chat(tokenizer: Any, chat: Chat, *, max_seconds: float = MAX_RENDER_SECONDS) -> str:
    """Renders a conversation as Transformers does, up to where the assistant's answer begins.

    Transformers runs templates in Jinja's sandbox. A template is untrusted, so its time is limited,
    too: between any two lines of Python, but not within one operation.

    Args:
        tokenizer: Transformers' tokenizer, which has the template.
        chat: A valid conversation.
        max_seconds: Maximum CPU time, in seconds, so that a busy machine refuses nothing.

    Raises:
        ChatTemplateError: The template refuses the conversation, fails or takes too long.
    """
    deadline = time.thread_time() + max_seconds

    def check_time(frame: FrameType, event: str, argument: Any) -> Any:
        if time.thread_time() > deadline:
            raise ChatTemplateError(f"it takes longer than {max_seconds:g} s")
        return check_time

    before = sys.gettrace()
    sys.settrace(check_time)
    try:
        return str(
            tokenizer.apply_chat_template(
                chat.messages,
                tools=list(chat.tools) or None,
                add_generation_prompt=True,
                tokenize=False,
                **chat.template_arguments,
            )
        )
    except ChatTemplateError:
        raise
    # The template is a program, which may fail in any way.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ChatTemplateError(shortened(reason, _SHOWN)) from error
    finally:
        sys.settrace(before)


def takes_parts(tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether a template renders a list with one part as it renders the part's text.

    Args:
        tokenizer: The tokenizer, whose checkpoint may have a template of its own for tools.
        tools: The tools of the conversation.

    Returns:
        None if these tools do not show it, because the template refuses them.
    """

    def rendered(content: Any) -> str | None:
        message = {"role": "user", "content": content}
        try:
            return render_chat(tokenizer, Chat(messages=[message], tools=tools))
        except ChatTemplateError:
            return None

    text = rendered(_PROBE)
    return None if text is None else rendered([{"type": "text", "text": _PROBE}]) == text
