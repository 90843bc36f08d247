"""Messages read from the text of a sequence and from its special tokens."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from shaperouter_service.conversation import MessagePart, MessageReader, MessageRules


class MessageWriter:
    """Reads the message of one sequence.

    Some models mark calls and reasoning with special tokens. The text of a sequence lacks these, so
    that stop strings mean the same with every kind of search. Here they are put back where they
    were.
    """

    def __init__(self, rules: MessageRules, markers: Mapping[int, str]) -> None:
        """Starts an empty message.

        Args:
            rules: How to read it.
            markers: The marks that are special tokens.
        """
        self._reader: MessageReader = rules.reader()
        self._thinks = rules.format.thinks
        self._single_call = rules.single_call
        self._markers = markers
        # Marks whose place in the text has not been reached, with the characters before each.
        self._ahead: deque[tuple[int, str]] = deque()
        self._detokenized = 0
        self._read = 0

    @property
    def reads_one_by_one(self) -> bool:
        """Whether tokens must be written one by one: to count them, or to end after a call."""
        return self._thinks or self._single_call

    @property
    def may_end(self) -> bool:
        """Whether the message may end before the sequence."""
        return self._single_call

    @property
    def is_complete(self) -> bool:
        """Whether the message has ended; nothing is read after it."""
        return self._reader.is_complete

    @property
    def in_reasoning(self) -> bool:
        """Whether the last text, or the next one, is reasoning."""
        return self._reader.in_reasoning

    def split(self, token_ids: Sequence[int]) -> Iterator[Sequence[int]]:
        """Splits tokens so that each mark is alone."""
        begin = 0
        for index, token in enumerate(token_ids):
            if token in self._markers:
                yield token_ids[begin:index]
                yield token_ids[index : index + 1]
                begin = index + 1
        yield token_ids[begin:]

    def detokenized(self, token_ids: Sequence[int], text: str) -> None:
        """Notes the text of tokens. A stop string may hold back a part of it."""
        self._detokenized += len(text)
        if len(token_ids) == 1 and (mark := self._markers.get(token_ids[0])):
            self._ahead.append((self._detokenized, mark))

    def write(self, text: str) -> list[MessagePart]:
        """Takes text that is certain, and returns the parts that are."""
        parts: list[MessagePart] = []
        begin = self._read
        end = begin + len(text)
        while self._ahead and self._ahead[0][0] <= end:
            place, mark = self._ahead.popleft()
            parts += self._reader.push(text[self._read - begin : place - begin] + mark)
            self._read = place
        parts += self._reader.push(text[self._read - begin :])
        self._read = end
        return parts

    def finish(self) -> list[MessagePart]:
        """Ends the message and returns the rest of its parts."""
        return self._reader.finish()
