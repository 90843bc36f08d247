"""Tokenizing for many clients: short texts at once, others in threads that take turns."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from shaperouter_service.conversation import MessageFormat
from shaperouter_service.generation.chat import Chat
from shaperouter_service.generation.limits import MAX_QUEUED_CHARACTERS
from shaperouter_service.system.fair_thread import FairThread
from shaperouter_service.text.detokenizer import context_of
from shaperouter_service.text.grammar_process import GrammarProcess
from shaperouter_service.text.languages import Languages
from shaperouter_service.text.text_encoding import EncodedText
from shaperouter_service.text.tokenizer import Tokenizer

T = TypeVar("T")

# Maximum characters that the event loop tokenizes itself. They take less than 0.2 ms, about as long
# as a round trip to a thread.
INLINE_CHARACTERS = 512
# Cost of tokenizing each word or text of a list, in characters that take as long.
CALL_CHARACTERS = 100
# Maximum characters of a text of ordinary length: about 10 ms of work, 50 ms at worst.
SHORT_CHARACTERS = 16_384


class TokenizerThreads:
    """The threads that tokenize for a router. Only the event loop may use it.

    Texts of ordinary length never wait for long ones, which share a thread of their own. So at most
    one long text at a time takes the memory of tokenizing, some hundred bytes per character.
    """

    def __init__(self) -> None:
        """Starts idle. Threads start when they are first needed."""
        self._short = FairThread("tokenize", limit=MAX_QUEUED_CHARACTERS, low_priority=False)
        self._long = FairThread("tokenize-long", limit=MAX_QUEUED_CHARACTERS, low_priority=True)
        self._grammars = FairThread("grammars", limit=MAX_QUEUED_CHARACTERS, low_priority=False)
        self._grammar_process = GrammarProcess()

    async def run(self, client: str, size: int, work: Callable[[], T]) -> T:
        """Tokenizes `size` characters for a client by calling `work`.

        Raises:
            TextQueueFullError: Too much text is already waiting.
        """
        if size <= INLINE_CHARACTERS:
            return work()
        thread = self._short if size <= SHORT_CHARACTERS else self._long
        return await thread.run(client, size, work)

    async def grammar(
        self,
        client: str,
        tokenizer: Tokenizer,
        name: str,
        value: str | tuple[str, ...],
        *,
        continues_text: bool,
        calls: str,
    ) -> str:
        """Makes a grammar of a constraint for a client, beside all tokenizing.

        Args:
            client: The client.
            tokenizer: The model's tokenizer.
            name: The constraint.
            value: Its value.
            continues_text: Whether the text continues that of the prompt, and so loses no space.
            calls: See `grammar_of`.

        Raises:
            ConstraintError: The constraint cannot be used.
            TextQueueFullError: Too many constraints are already waiting.
        """

        def make() -> str:
            # It takes a while at the first time.
            drops = not continues_text and tokenizer.drops_first_space
            return self._grammar_process.grammar(name, value, drops_first_space=drops, calls=calls)

        # Each counts the same, as its size says little about the time that it takes.
        return await self._grammars.run(client, CALL_CHARACTERS, make)


class ClientTokenizer:
    """A model's tokenizer for one request, which takes turns with those of other clients.

    Attributes:
        queue_seconds: Time that the request's texts have waited for a thread.
        seconds: Time spent tokenizing them.
    """

    def __init__(self, tokenizer: Tokenizer, threads: TokenizerThreads, client: str) -> None:
        """Starts without texts.

        Args:
            tokenizer: The model's tokenizer.
            threads: The threads that run it.
            client: The client, for fairness between waiting clients.
        """
        self.decode = tokenizer.decode
        self.queue_seconds = 0.0
        self.seconds = 0.0
        self._tokenizer = tokenizer
        self._threads = threads
        self._client = client

    async def encode(self, text: str) -> list[int]:
        """Tokenizes a text, with the special tokens that the tokenizer adds."""
        return await self._run(len(text), partial(self._tokenizer.encode, text))

    async def encode_source(
        self, text: str, source_language: str, target_language: str
    ) -> list[int]:
        """Tokenizes a text to translate; see `Tokenizer`."""
        work = partial(self._tokenizer.encode_source, text, source_language, target_language)
        return await self._run(len(text), work)

    async def encode_plain(self, text: str) -> list[int]:
        """Tokenizes a text without special tokens, for a prompt that is to be continued."""
        (tokens,) = await self._run(len(text), partial(self._tokenizer.encode_words, [text]))
        return tokens

    async def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Tokenizes words unchanged, each separately and without special tokens."""
        size = sum(CALL_CHARACTERS + len(word) for word in words)
        return await self._run(size, partial(self._tokenizer.encode_words, words))

    async def encode_texts(
        self, texts: Sequence[str], pairs: Sequence[str] | None, max_tokens: int | None
    ) -> list[EncodedText]:
        """Tokenizes texts, or pairs of texts, for a text encoder; see `text_encoding`.

        Other clients have their turn after every SHORT_CHARACTERS.
        """
        encoded: list[EncodedText] = []
        for begin, end, size in _turns(texts, pairs):
            part = None if pairs is None else pairs[begin:end]
            work = partial(self._tokenizer.encode_texts, texts[begin:end], part, max_tokens)
            encoded += await self._run(size, work)
        return encoded

    @property
    def languages(self) -> Languages:
        """See `Tokenizer`."""
        return self._tokenizer.languages

    @property
    def has_chat_template(self) -> bool:
        """See `Tokenizer`."""
        return self._tokenizer.has_chat_template

    async def render_chat(self, chat: Chat) -> str:
        """Renders a conversation in a thread; see `Tokenizer`."""
        size = sum(CALL_CHARACTERS + len(str(message)) for message in chat.messages)
        work = partial(self._tokenizer.render_chat, chat)
        # A template may be slow whatever it renders, so the event loop never does it.
        return await self._run(max(size, INLINE_CHARACTERS + 1), work)

    def message_format(self, chat: Chat) -> MessageFormat:
        """See `Tokenizer`."""
        return self._tokenizer.message_format(chat)

    @property
    def is_constrainable(self) -> bool:
        """See `Tokenizer`."""
        return self._tokenizer.is_constrainable

    def context(self, prompt: Sequence[int]) -> Sequence[int]:
        """The end of a prompt that the text after it depends on; see `context_of`."""
        return context_of(self._tokenizer.decode, prompt)

    async def grammar(
        self,
        name: str,
        value: str | tuple[str, ...],
        *,
        continues_text: bool = False,
        calls: str = "",
    ) -> str:
        """Makes a grammar of a constraint; see `grammar_of`.

        Args:
            name: The constraint.
            value: Its value.
            continues_text: Whether the text continues that of the prompt.
            calls: See `grammar_of`.
        """
        return await self._threads.grammar(
            self._client,
            self._tokenizer,
            name,
            value,
            continues_text=continues_text,
            calls=calls,
        )

    @property
    def pad_id(self) -> int:
        """See `Tokenizer`."""
        return self._tokenizer.pad_id

    @property
    def decoder(self) -> str | None:
        """See `Tokenizer`."""
        return self._tokenizer.decoder

    @property
    def is_concatenative(self) -> bool:
        """See `Tokenizer`."""
        return self._tokenizer.is_concatenative

    async def _run(self, size: int, work: Callable[[], T]) -> T:
        arrived, began = time.monotonic(), 0.0

        def timed() -> T:
            nonlocal began
            began = time.monotonic()
            return work()

        try:
            return await self._threads.run(self._client, size, timed)
        finally:
            # If the caller was cancelled while its text waited, `began` is 0.
            ended = time.monotonic()
            self.queue_seconds += (began or ended) - arrived
            self.seconds += ended - (began or ended)


def _turns(texts: Sequence[str], pairs: Sequence[str] | None) -> Iterator[tuple[int, int, int]]:
    """Begin, end and cost in characters of the texts that are tokenized in one turn."""
    begin = size = 0
    for index, text in enumerate(texts):
        own = CALL_CHARACTERS + len(text) + (0 if pairs is None else len(pairs[index]))
        if index > begin and size + own > SHORT_CHARACTERS:
            yield begin, index, size
            begin = index
            size = 0
        size += own
    if len(texts) > begin:
        yield begin, len(texts), size
