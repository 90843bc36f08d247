"""The grammar that the text of a request must follow, made and checked before a worker sees it."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from shaperouter_service.conversation import MessageFormat, MessageRules
from shaperouter_service.errors import Violation
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.limits import MAX_CONSTRAINT_CHARACTERS
from shaperouter_service.generation.resolution import Given
from shaperouter_service.text import (
    CONSTRAINTS,
    ClientTokenizer,
    ConstraintError,
    tool_call_grammar,
)

# The schema of arguments where a tool's own cannot be used.
_ANY: Mapping[str, Any] = {"type": "object"}


async def grammar_of_options(
    given: Given, tokenizer: ClientTokenizer, *, continues_text: bool, calls: str = ""
) -> tuple[str, list[Violation]]:
    """The grammar of a request's constraint, and what is wrong with it; takes up to a second.

    Args:
        given: Options that are valid by themselves, with at most one constraint.
        tokenizer: The model's tokenizer.
        continues_text: Whether the new text continues that of the prompt.
        calls: The grammar of calls that may replace the text; empty for none.
    """
    for name in CONSTRAINTS & given.keys():
        try:
            grammar = await tokenizer.grammar(
                name, given[name], continues_text=continues_text, calls=calls
            )
            return grammar, []
        except ConstraintError as error:
            violation = Violation(field=f"options.{name}{error.path}", description=str(error))
            return "", [violation]
    return "", []


async def grammar_of_answer(
    chat: Chat,
    message: MessageRules,
    given: Given,
    tokenizer: ClientTokenizer,
    *,
    may_call: bool,
) -> tuple[str, MessageRules, list[Violation]]:
    """The grammar of an answer in a conversation, how it is read, and what is wrong.

    Args:
        chat: The conversation.
        message: How the answer is read without a grammar.
        given: Options that are valid by themselves, with at most one constraint.
        tokenizer: The model's tokenizer.
        may_call: Whether an answer in a format may call tools instead.
    """
    if chat.must_call:
        grammar, wrong = await _grammar_of_calls(chat, message, given, tokenizer)
        # The answer has only calls, even if the prompt has begun the reasoning.
        return grammar, replace(message, in_reasoning=False), wrong
    if not CONSTRAINTS & given.keys():
        return "", message, []
    schemas: Mapping[str, Mapping[str, Any]] = {}
    if may_call and message.format.calls is not None:
        schemas = await _usable(_schemas(chat, message.tools), tokenizer)
    # If the schemas cannot be used together with the format, arguments may be any objects.
    for tried in (schemas, dict.fromkeys(schemas, _ANY)):
        calls = _calls(message, tried, beside_text=True) if tried else ""
        grammar, wrong = await grammar_of_options(
            given, tokenizer, continues_text=False, calls=calls
        )
        if not wrong:
            break
    if not schemas:
        # It has no marks: all of it is the text that was asked for.
        return grammar, MessageRules(format=MessageFormat()), wrong
    form = MessageFormat(calls=message.format.calls)
    return grammar, replace(message, format=form, in_reasoning=False), wrong


async def _grammar_of_calls(
    chat: Chat, message: MessageRules, given: Given, tokenizer: ClientTokenizer
) -> tuple[str, list[Violation]]:
    """The grammar of an answer that must call a tool, and what is wrong with it.

    Args:
        chat: The conversation, which requires a call.
        message: How the answer is read.
        given: Options that are valid by themselves.
        tokenizer: The model's tokenizer.
    """
    if message.format.calls is None:
        why = "must not require a call: the chat template has no format of calls that is known"
        return "", [Violation(field="tool_choice", description=why)]
    for name in CONSTRAINTS & given.keys():
        rule = "must not be set if tool_choice requires a call"
        return "", [Violation(field=f"options.{name}", description=rule)]
    if not tokenizer.is_constrainable:
        why = f"must not require a call: the tokenizer's decoder, {tokenizer.decoder}, hides bytes"
        return "", [Violation(field="tool_choice", description=why)]
    schemas = _schemas(chat, chat.must_call)
    for name, schema in schemas.items():
        if error := await _error_of(schema, tokenizer):
            place = f"tools: the parameters of {name}{error.path}"
            return "", [Violation(field="tools", description=f"{place}: {error}")]
    try:
        calls = _bounded(_calls(message, schemas, beside_text=False))
        return await tokenizer.grammar("grammar", calls), []
    except ConstraintError as error:
        return "", [Violation(field="tools", description=str(error))]


def _schemas(chat: Chat, names: Collection[str]) -> Mapping[str, Mapping[str, Any]]:
    """The schemas of some tools, by name."""
    return {name: schema for name, schema in chat.tool_schemas.items() if name in names}


async def _usable(
    schemas: Mapping[str, Mapping[str, Any]], tokenizer: ClientTokenizer
) -> Mapping[str, Mapping[str, Any]]:
    """Schemas of tools that an answer may call, any object for those that cannot be enforced.

    Without a format of the answer, calls follow no schema. So this is no reason to refuse it.
    """
    usable = {
        name: _ANY if await _error_of(schema, tokenizer) else schema
        for name, schema in schemas.items()
    }
    is_long = len(json.dumps(usable)) > MAX_CONSTRAINT_CHARACTERS
    return dict.fromkeys(usable, _ANY) if is_long else usable


async def _error_of(
    schema: Mapping[str, Any], tokenizer: ClientTokenizer
) -> ConstraintError | None:
    """What is wrong with the schema of a tool."""
    try:
        await tokenizer.grammar("json_schema", _bounded(json.dumps(schema)))
    except ConstraintError as error:
        return error
    return None


def _calls(
    message: MessageRules, schemas: Mapping[str, Mapping[str, Any]], *, beside_text: bool
) -> str:
    """A grammar in Lark's syntax of calls of some tools, whose format is known."""
    form = message.format.calls
    if form is None:
        raise TypeError("the format of calls is not known")
    return tool_call_grammar(form, schemas, is_single=message.single_call, beside_text=beside_text)


def _bounded(constraint: str) -> str:
    """A constraint, whose length is that of an option at most."""
    if len(constraint) > MAX_CONSTRAINT_CHARACTERS:
        raise ConstraintError(
            f"must have at most {MAX_CONSTRAINT_CHARACTERS} characters, got {len(constraint)}"
        )
    return constraint
