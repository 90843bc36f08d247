"""The formats of models, recognised from what their chat templates write."""

import pytest

from shaperouter_service.conversation import message_format, template_names

# What tells the templates of families apart.
QWEN3 = """{{ '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}' }}
{%- set content = message.content.split('</think>')[-1] %}"""
QWEN3_CODER = "<tool_call>\\n<function=example_function_name>\\n<parameter=value>"
LLAMA = """{{- 'Respond in the format {"name": function name, \
"parameters": dictionary of argument name and its value}.' }}"""
MISTRAL = """{{- "[TOOL_CALLS] [" }}"""
NEW_MISTRAL = """{{- "[TOOL_CALLS]" + name + "[ARGS]" + arguments }}"""
PHI = "{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}"
GEMMA = "{{ '<start_of_turn>' + role + '\\n' }}"


@pytest.mark.parametrize(
    ("template", "calls", "thinks"),
    [
        (QWEN3, "hermes", True),
        (QWEN3_CODER, None, False),
        (LLAMA, "llama3", False),
        (MISTRAL, "mistral", False),
        (NEW_MISTRAL, None, False),
        (PHI, "phi4", False),
        (GEMMA, None, False),
    ],
)
def test_a_template_shows_how_its_model_writes(
    template: str, calls: str | None, thinks: bool
) -> None:
    found = message_format(template)
    assert (found.calls and found.calls.name, found.thinks) == (calls, thinks)


def test_marks_are_those_of_calls_and_reasoning() -> None:
    assert set(message_format(QWEN3).markers) == {
        "<think>", "</think>", "<tool_call>", "</tool_call>"
    }  # fmt: skip
    assert message_format(MISTRAL).markers == ("[TOOL_CALLS]",)
    assert message_format(GEMMA).markers == ()


def test_names_in_the_code_of_a_template_are_told_from_its_text() -> None:
    names = template_names(
        "Text with tools. {# tools #}{% if xml_tools and message.tool_calls %}"
        "{{ message['role'] == 'developer' }}{% endif %}"
    )
    assert {"xml_tools", "message"} <= names.variables
    assert {"tool_calls", "role", "developer"} <= names.fields
    assert "tools" not in names.variables | names.fields


def test_a_template_that_is_no_template_has_no_names() -> None:
    assert not template_names("{% if 'open").fields
