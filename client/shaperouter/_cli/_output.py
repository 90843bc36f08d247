"""Output of a generation: text or JSON, complete or streamed."""

import functools
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable

import click

from shaperouter._cli._json import jsonable, print_json
from shaperouter._cli._routes import print_routes
from shaperouter._generation import Delta, GeneratedSequence, Generation
from shaperouter._signature import Signature

# A model's text must not control the terminal: control characters are shown as pictures.
_PICTURES = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)

# Explains an empty line, which would look like a failure.
_NO_TEXT = (
    "A sequence has tokens but no text: the model has no tokenizer, or wrote special tokens only. "
    "--json prints the token ids."
)


def for_terminal(text: str) -> str:
    """A model's text as it may be written to a terminal."""
    return text.translate(_PICTURES)


class Output(ABC):
    """Prints the events of a stream, in order."""

    @property
    def cursor_is_in_text(self) -> bool:
        """Whether the cursor is in a line of text on a terminal."""
        return False

    def stall(self, signature: Signature) -> None:
        """The request starts to wait for a compilation."""
        del signature

    def delta(self, delta: Delta) -> None:
        """New tokens have arrived."""
        del delta

    @abstractmethod
    def end(self, generation: Generation) -> None:
        """The generation is complete."""

    def interrupt(self) -> None:
        """An error or Ctrl-C has ended the generation."""
        if self.cursor_is_in_text:
            click.echo()


def output_for(*, as_json: bool, stream: bool, explain: bool, prompt: Callable[[], str]) -> Output:
    """Returns the output that the options ask for.

    Args:
        as_json: Print JSON.
        stream: Print events as they arrive.
        explain: Also print how the request was routed; JSON has that in any case.
        prompt: Returns the text that a terminal shows before the new text. It is called only for a
            terminal, when the first text has arrived.
    """
    if as_json:
        return _JsonLines() if stream else _Json()
    kind = _StreamedText if stream else _Text
    return kind(prompt, explain=explain)


class _Json(Output):
    """The complete result as one object."""

    def end(self, generation: Generation) -> None:
        print_json(generation)


class _JsonLines(Output):
    """A line with an object for each event."""

    def stall(self, signature: Signature) -> None:
        print_json({"event": "stall", "signature": signature})

    def delta(self, delta: Delta) -> None:
        print_json(
            {
                "event": "delta",
                "sequence": delta.sequence,
                "text": delta.text,
                "token_ids": delta.token_ids,
                "logprobs": delta.logprobs,
            }
        )

    def end(self, generation: Generation) -> None:
        print_json({"event": "completion", "generation": jsonable(generation)})


class _Text(Output):
    """The complete text, after the prompt if stdout is a terminal."""

    def __init__(self, prompt: Callable[[], str], *, explain: bool) -> None:
        self._prompt = functools.cache(prompt)
        self._explain = explain
        self._terminal = sys.stdout.isatty()

    def end(self, generation: Generation) -> None:
        numbered = len(generation.sequences) > 1
        for number, sequence in enumerate(generation.sequences, 1):
            if numbered:
                self._heading(number, sequence)
            self._begin()
            self._write(sequence.text)
            click.echo()
        self._summarize(generation)

    def _begin(self) -> None:
        if self._terminal:
            click.secho(for_terminal(self._prompt()), nl=False, dim=True)

    def _write(self, text: str) -> None:
        click.echo(for_terminal(text) if self._terminal else text, nl=False)

    def _heading(self, number: int, sequence: GeneratedSequence) -> None:
        parts = [f"[{number}]"]
        if sequence.score is not None:
            parts.append(f"score {sequence.score:.4f}")
        click.secho(" · ".join([*parts, sequence.finish_reason]), dim=True)

    def _summarize(self, generation: Generation) -> None:
        if any(sequence.token_ids and not sequence.text for sequence in generation.sequences):
            click.echo(_NO_TEXT, err=True)
        if sys.stderr.isatty():
            click.secho(summary(generation), err=True, dim=True)
        if self._explain:
            print_routes(generation.routes)


class _StreamedText(_Text):
    """The text of the first sequence as it arrives, and then the other sequences."""

    def __init__(self, prompt: Callable[[], str], *, explain: bool) -> None:
        super().__init__(prompt, explain=explain)
        self._started = False

    @property
    def cursor_is_in_text(self) -> bool:
        return self._started and self._terminal

    def delta(self, delta: Delta) -> None:
        if delta.sequence > 0:
            return
        if not self._started:
            self._started = True
            self._begin()
        self._write(delta.text)

    def end(self, generation: Generation) -> None:
        click.echo()
        for number, sequence in enumerate(generation.sequences[1:], 2):
            self._heading(number, sequence)
            self._begin()
            self._write(sequence.text)
            click.echo()
        self._summarize(generation)


def summary(generation: Generation) -> str:
    """Figures of the request in one line."""
    timings, tokens = generation.timings, generation.usage.generated_tokens
    later = tokens - len(generation.sequences)  # tokens after the first of each sequence
    parts = [f"{tokens} tokens" if tokens != 1 else "1 token"]
    if later > 0 and timings.decode_seconds > 0:
        parts.append(f"{later / timings.decode_seconds:.1f} tokens/s")
    parts.append(f"first token after {timings.time_to_first_token_seconds:.2f} s")
    parts.append(f"stalled {timings.stall_seconds:.2f} s")
    if len(generation.sequences) == 1 and generation.sequences[0].score is not None:
        parts.append(f"score {generation.sequences[0].score:.4f}")
    parts.append(f"seed {generation.seed}")
    graphs = [
        use.served.shape
        if use.served == use.asked
        else f"{use.served.shape} (for {use.asked.shape})"
        for use in generation.graphs
    ]
    if graphs:
        parts.append(", ".join(graphs))
    return " · ".join(parts)
