"""How models write calls of tools and their reasoning, recognised from their chat templates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

# What begins and ends the reasoning of a model that thinks.
THINK, THINK_END = "<think>", "</think>"


@dataclass(frozen=True, kw_only=True)
class CallFrame:
    """The marks around the JSON of calls.

    Attributes:
        begin: Before the first.
        between: Between two.
        end: After the last.
    """

    begin: str = ""
    between: str = ""
    end: str = ""


@dataclass(frozen=True, kw_only=True)
class CallFormat:
    """How a family of models writes calls of tools: as JSON with a name and arguments.

    Attributes:
        name: Name of the format.
        signs: Texts that mark its templates; each template has at least one.
        foreign: Texts of templates that have a sign, but another format.
        closings: What ends calls, by what begins them. Without one, the JSON ends them. The end of
            the message always does.
        is_list: Whether a list of calls follows what begins them, and not a single call.
        bare_closing: What ends a call that begins a message, or follows another call, without any
            mark; None if there are no such calls.
        arguments: Name of the arguments in a call.
    """

    name: str
    signs: Sequence[str]
    foreign: Sequence[str] = ()
    closings: Mapping[str, str]
    is_list: bool = False
    bare_closing: str | None = None
    arguments: str = "arguments"

    @property
    def frame(self) -> "CallFrame":
        """What is around calls."""
        opening, closing = next(iter(self.closings.items()))
        if self.is_list:
            return CallFrame(begin=f"{opening}[", between=", ", end=f"]{closing}")
        if self.bare_closing is not None:
            return CallFrame(between=f"{self.bare_closing} ")
        between = f"\n{closing}\n{opening}\n"
        return CallFrame(begin=f"{opening}\n", between=between, end=f"\n{closing}")

    def written(self, calls: Sequence[Mapping[str, Any]]) -> str:
        """Calls as the model would have written them, each with `name` and `arguments`."""
        each = (json.dumps(call, ensure_ascii=False) for call in calls)
        return f"{self.frame.begin}{self.frame.between.join(each)}{self.frame.end}"


# A template has the first format whose sign it has.
FORMATS = (
    # Qwen2.5, Qwen3, SmolLM3 and the models of Nous Research.
    CallFormat(
        name="hermes",
        signs=["<tool_call>"],
        # Qwen3-Coder and GLM have no JSON within the same marks.
        foreign=["<function=", "<arg_key>"],
        closings={"<tool_call>": "</tool_call>"},
    ),
    CallFormat(
        name="mistral",
        signs=["[TOOL_CALLS]"],
        foreign=["[ARGS]"],
        closings={"[TOOL_CALLS]": ""},
        is_list=True,
    ),
    # Phi-4-mini, which also writes the second of these.
    CallFormat(
        name="phi4",
        signs=["<|tool|>"],
        closings={"<|tool_call|>": "<|/tool_call|>", "functools": ""},
        is_list=True,
    ),
    # Llama 3.1 to 3.3.
    CallFormat(
        name="llama3",
        signs=['"parameters": dictionary of argument name', "<|python_tag|>"],
        closings={"<|python_tag|>": ";"},
        bare_closing=";",
        arguments="parameters",
    ),
)


@dataclass(frozen=True, kw_only=True)
class MessageFormat:
    """How a model writes messages.

    Attributes:
        calls: How it writes calls; None if that is unknown.
        thinks: Whether it may write its reasoning first.
        markers: The marks of both.
    """

    calls: CallFormat | None = None
    thinks: bool = False
    markers: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Lists the marks."""
        closings = self.calls.closings if self.calls else {}
        marks = [THINK, THINK_END] * self.thinks + [*closings, *closings.values()]
        object.__setattr__(self, "markers", tuple(filter(None, marks)))


@lru_cache(maxsize=64)
def message_format(template: str) -> MessageFormat:
    """Recognises the format of a model from its chat template."""

    def has(texts: Sequence[str]) -> bool:
        return any(text in template for text in texts)

    calls = (each for each in FORMATS if has(each.signs) and not has(each.foreign))
    return MessageFormat(calls=next(calls, None), thinks=THINK_END in template)
