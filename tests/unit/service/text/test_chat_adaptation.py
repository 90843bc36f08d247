"""Conversations put into the form that a chat template reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from shaperouter_service.conversation import message_format
from shaperouter_service.generation.chat import Chat
from shaperouter_service.text import ChatTemplateError, Tokenizer

USER = {"role": "user", "content": "hi"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
TOOL = {"type": "function", "function": {"name": "add"}}
CALLED = {
    "role": "assistant",
    "content": "So:",
    "tool_calls": [{"id": "c", "function": {"name": "add", "arguments": {"a": 1}}}],
}
PLAIN = "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}"
LISTS = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% endfor %}"
)
# As Qwen3's does, it drops a content that is not text.
DROPS = "{% for m in messages %}{{ m.content if m.content is string }}|{% endfor %}"
PHI = "{% for m in messages %}{{ m['content'] }}{% if 'tools' in m %}<|tool|>{{ m['tools'] }}\
{% endif %}|{% endfor %}"
SMOL = "{{ xml_tools | tojson if xml_tools }}{# <tool_call> #}" + PLAIN


@pytest.fixture
def rendered(checkpoint: Path, tmp_path: Path) -> Any:
    """Renders a conversation with a template."""

    def render(template: str, *messages: dict[str, Any], **fields: Any) -> str:
        copy = shutil.copytree(checkpoint, tmp_path / "copy", dirs_exist_ok=True)
        (copy / "chat_template.jinja").write_text(template)
        return Tokenizer(copy).render_chat(Chat(messages=messages, **fields))

    return render


def test_parts_become_one_text_where_a_template_takes_no_lists(rendered: Any) -> None:
    assert rendered(PLAIN, PARTS) == "user:a\nb|"
    assert rendered(DROPS, PARTS) == "a\nb|"
    assert rendered(LISTS, PARTS) == "ab"


def test_tools_that_a_template_refuses_decide_nothing_for_other_callers(
    checkpoint: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    refuses = "{% for t in tools or [] %}{{ t.function.parameters.properties.a }}{% endfor %}"
    (copy / "chat_template.jinja").write_text(refuses + LISTS)
    tokenizer = Tokenizer(copy)
    wrong = {"type": "function", "function": {"name": "x"}}
    with pytest.raises(ChatTemplateError):
        tokenizer.render_chat(Chat(messages=[PARTS], tools=[wrong]))
    assert tokenizer.render_chat(Chat(messages=[PARTS])) == "ab"


def test_a_template_for_tools_takes_lists_or_not_whatever_the_other_one_does(
    checkpoint: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text(LISTS)
    further = copy / "additional_chat_templates"
    further.mkdir()
    (further / "tool_use.jinja").write_text("{{ tools[0].function.name }}: " + PLAIN)
    tokenizer = Tokenizer(copy)
    assert tokenizer.render_chat(Chat(messages=[PARTS], tools=[TOOL])) == "add: user:a\nb|"
    assert tokenizer.render_chat(Chat(messages=[PARTS])) == "ab"


def test_developers_are_the_system_where_a_template_lacks_them(rendered: Any) -> None:
    developer = {"role": "developer", "content": "brief"}
    system = {"role": "system", "content": "kind"}
    assert rendered(PLAIN, developer, USER) == "system:brief|user:hi|"
    assert rendered(PLAIN, system, developer, USER) == "system:kind\n\nbrief|user:hi|"
    knows = "{{ 'x' if messages[0].role == 'developer' }}" + PLAIN
    assert rendered(knows, developer) == "xdeveloper:brief|"


def test_tools_go_where_a_template_looks_for_them(rendered: Any) -> None:
    assert rendered("{{ tools[0].function.name }}", USER, tools=[TOOL]) == "add"
    listed = json.dumps([TOOL])
    assert rendered(SMOL, USER, tools=[TOOL]) == f"{listed}user:hi|"
    assert rendered(PHI, USER, tools=[TOOL]) == '<|tool|>[{"name": "add"}]|hi|'
    system = {"role": "system", "content": "s"}
    assert rendered(PHI, system, tools=[TOOL]) == 's<|tool|>[{"name": "add"}]|'


def test_earlier_calls_are_written_where_a_template_does_not_read_them(rendered: Any) -> None:
    call = '{"name": "add", "arguments": {"a": 1}}'
    written = f"<tool_call>\n{call}\n</tool_call>"
    assert rendered(SMOL, CALLED) == f"assistant:So:\n{written}|"
    alone = CALLED | {"content": None}
    assert rendered(PHI, alone) == f"<|tool_call|>[{call}]<|/tool_call|>|"
    assert rendered("{{ messages[0].tool_calls[0].id }}", CALLED) == "c"


@pytest.mark.parametrize(
    ("messages", "fields", "field", "told"),
    [
        ([USER], {"tools": [TOOL]}, "tools", "no place for tools"),
        ([CALLED], {}, "messages", "no place for tool_calls"),
        ([CALLED | {"tool_calls": [3]}], {}, "messages", "no place for tool_calls"),
        (
            [USER],
            {"template_arguments": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
            "does not read enable_thinking",
        ),
    ],
)
def test_what_a_template_would_drop_is_refused(
    rendered: Any, messages: Any, fields: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(ChatTemplateError, match=told) as error:
        rendered(PLAIN, *messages, **fields)
    assert error.value.field == field


@pytest.mark.parametrize("calls", ["x", [3], [{"function": 3}]])
def test_calls_that_are_none_are_refused(rendered: Any, calls: Any) -> None:
    with pytest.raises(ChatTemplateError, match="must be"):
        rendered(SMOL, CALLED | {"tool_calls": calls})


def test_marks_that_are_special_tokens_are_known(checkpoint: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(checkpoint, tmp_path / "copy")
    path = str(copy / "tokenizer.json")
    bpe = tokenizers.Tokenizer.from_file(path)
    bpe.add_special_tokens(["[TOOL_CALLS]"])
    bpe.add_tokens(["<tool_call>"])
    bpe.save(path)
    tokenizer = Tokenizer(copy)
    mark = bpe.token_to_id("[TOOL_CALLS]")
    assert tokenizer.dropped_markers(message_format("[TOOL_CALLS]")) == {mark: "[TOOL_CALLS]"}
    # A token that texts show, and one that is none, need no help.
    assert tokenizer.dropped_markers(message_format("<tool_call>")) == {}
