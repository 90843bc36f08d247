"""Printing a generation: text or JSON, whole or as it is made."""

import sys
from abc import ABC, abstractmethod

import click

from shaperouter._cli._json import jsonable, print_json
from shaperouter._generation import Delta, Generation
from shaperouter._signature import Signature

# What a model writes must not steer the terminal: control characters are shown as pictures.
_PICTURES = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)


class Output(ABC):
    """Takes the events of a stream in their order."""

    cursor_is_in_text = False  # whether text stands in the line of a terminal the cursor is in

    def stall(self, signature: Signature) -> None:
        """The request starts to wait for a compilation."""
        del signature

    def delta(self, delta: Delta) -> None:
        """New tokens have come."""
        del delta

    @abstractmethod
    def end(self, generation: Generation) -> None:
        """The generation is whole."""

    def break_off(self) -> None:
        """The generation ends here, by an error or an interruption."""
        if self.cursor_is_in_text:
            click.echo()


def output_for(*, as_json: bool, stream: bool, prompt: str) -> Output:
    """The way to print that the options ask for.

    Args:
        as_json: Print JSON.
        stream: Print as it is made.
        prompt: What a terminal shows before the new text.
    """
    if as_json:
        return _JsonLines() if stream else _Json()
    return _StreamedText(prompt) if stream else _Text(prompt)


class _Json(Output):
    """The whole result as one object."""

    def end(self, generation: Generation) -> None:
        print_json(generation)


class _JsonLines(Output):
    """One object a line for each event."""

    def stall(self, signature: Signature) -> None:
        print_json({"event": "stall", "signature": signature})

    def delta(self, delta: Delta) -> None:
        print_json({"event": "delta", "text": delta.text, "token_ids": delta.token_ids})

    def end(self, generation: Generation) -> None:
        print_json({"event": "completion", "generation": jsonable(generation)})


class _StreamedText(Output):
    """The new text as it comes, after the prompt if stdout is a terminal."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._terminal = sys.stdout.isatty()
        self._started = False

    @property
    def cursor_is_in_text(self) -> bool:  # type: ignore[override]
        return self._started and self._terminal

    def delta(self, delta: Delta) -> None:
        if not self._started:
            self._started = True
            if self._terminal:
                click.secho(self._prompt.translate(_PICTURES), nl=False, dim=True)
        text = delta.text.translate(_PICTURES) if self._terminal else delta.text
        click.echo(text, nl=False)

    def end(self, generation: Generation) -> None:
        click.echo()
        if sys.stderr.isatty():
            click.secho(summary(generation), err=True, dim=True)


class _Text(_StreamedText):
    """The same text, when it is whole."""

    def delta(self, delta: Delta) -> None:
        del delta

    def end(self, generation: Generation) -> None:
        super().delta(Delta(text=generation.text, token_ids=generation.token_ids))
        super().end(generation)


def summary(generation: Generation) -> str:
    """What the request took, in one line."""
    timings, tokens = generation.timings, generation.usage.generated_tokens
    parts = [f"{tokens} tokens" if tokens != 1 else "1 token"]
    if tokens > 1 and timings.decode_seconds > 0:
        parts.append(f"{(tokens - 1) / timings.decode_seconds:.1f} tokens/s")
    parts.append(f"first token after {timings.time_to_first_token_seconds:.2f} s")
    parts.append(f"stalled {timings.stall_seconds:.2f} s")
    graphs = [
        str(use.served) if use.served == use.asked else f"{use.served} (for {use.asked})"
        for use in generation.graphs
    ]
    if graphs:
        parts.append(", ".join(graphs))
    return " · ".join(parts)
