"""Multipart forms: texts and one file, read within limits as they arrive.

Starlette's own forms keep the whole file, in memory and on disk, before anyone sees it. Here the
file is handed on piece by piece, so that its memory is counted and samples are used as they arrive.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from http import HTTPStatus

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request
from starlette.types import Message

from shaperouter_service.edge.http.bodies import check_type, read_pieces, refuse_compressed
from shaperouter_service.edge.http.errors import HttpError
from shaperouter_service.errors import InvalidRequestError, shortened

FORM_TYPE = "multipart/form-data"
# Maximum number of parts, several times as many as a request has fields.
MAX_PARTS = 128
# Encodings of parts that change no byte.
_PLAIN = (b"7bit", b"8bit", b"binary")

# It would warn of every form that is refused, without a limit.
logging.getLogger("python_multipart.multipart").setLevel(logging.ERROR)


class Form:
    """A form of texts and one file, which may arrive in any order.

    Attributes:
        before: Names and values of the texts before the file, in order.
        after: Likewise of the texts after the file.
        caller: The request without its body: it only says when the caller leaves.
    """

    def __init__(
        self, request: Request, *, file: str, max_file_bytes: int, max_text_bytes: int
    ) -> None:
        """Begins to read.

        Args:
            request: The request.
            file: Name of the file's field.
            max_file_bytes: Maximum size of the file.
            max_text_bytes: Maximum size of everything else.

        Raises:
            HttpError: The body is no form or compressed, or comes from a page of another site.
        """
        check_type(request, FORM_TYPE)
        # Most recordings are compressed already, so decompressing forms would save little.
        refuse_compressed(request)
        _refuse_other_sites(request)
        self.before: list[tuple[str, str]] = []
        self.after: list[tuple[str, str]] = []
        self.caller = Request(request.scope, self._receive_after_body)
        self._request, self._name, self._max_text_bytes = request, file, max_text_bytes
        self._body = read_pieces(request, limit=max_file_bytes + max_text_bytes)
        self._parser = MultipartParser(
            _boundary(request),
            {
                "on_part_begin": self._begin_part,
                "on_header_field": self._add_to_header_name,
                "on_header_value": self._add_to_header_value,
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._add_to_part,
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
        )
        # The part that is being read.
        self._headers: dict[bytes, bytes] = {}
        self._header_name, self._header_value = bytearray(), bytearray()
        self._part_name, self._text = "", bytearray()
        self._parts = self._text_bytes = 0
        # The state of the file: whether it has begun and ended, and the bytes read but not handed
        # on.
        self._has_file = self._has_whole_file = False
        self._pieces: deque[bytes] = deque()
        self._is_complete = False
        self._body_is_over = asyncio.Event()

    async def read_until_file(self) -> bool:
        """Reads the texts before the file; returns whether there is a file.

        Raises:
            HttpError: The body is no form, or exceeds a limit of size or time.
            InvalidRequestError: A part is invalid.
            ClientDisconnect: The caller has gone.
        """
        while not self._has_file and await self._read():
            pass
        return self._has_file

    async def file(self) -> AsyncGenerator[bytes, None]:
        """Yields the file, and reads the texts after it; see `read_until_file` for errors."""
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if not await self._read():
                return

    async def _read(self) -> bool:
        """Reads a piece of the body; returns whether there was one."""
        try:
            piece = await anext(self._body, None)
        except BaseException:
            self._body_is_over.set()
            raise
        if piece is None:
            self._body_is_over.set()
            if not self._is_complete:
                raise _invalid("it ends before its last boundary")
            return False
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise _invalid(shortened(str(error), 200)) from error
        return True

    async def _receive_after_body(self) -> Message:
        await self._body_is_over.wait()
        return await self._request.receive()

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise _invalid(f"it must have at most {MAX_PARTS} parts")
        self._headers = {}

    def _add_to_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_to_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        self._headers[bytes(self._header_name).lower()] = bytes(self._header_value)
        self._header_name, self._header_value = bytearray(), bytearray()

    def _end_headers(self) -> None:
        kind, parameters = parse_options_header(self._headers.get(b"content-disposition"))
        name = parameters.get(b"name")
        if kind != b"form-data" or name is None:
            raise _invalid("each part must have 'content-disposition: form-data; name=NAME'")
        self._part_name = _decoded(name, "name of a part")
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").lower()
        if encoding not in _PLAIN:
            shown = shortened(repr(encoding.decode("latin-1")), 64)
            raise _invalid(f"content-transfer-encoding must be binary, got {shown}")
        self._count_text(len(name))
        if self._part_name == self._name:
            if self._has_file:
                raise InvalidRequestError.of(self._name, "must occur once, got another one")
            self._has_file = True

    def _add_to_part(self, data: bytes, start: int, end: int) -> None:
        if self._part_name == self._name:
            self._pieces.append(data[start:end])
            return
        self._count_text(end - start)
        self._text += data[start:end]

    def _end_part(self) -> None:
        if self._part_name == self._name:
            self._has_whole_file = True
            return
        texts = self.after if self._has_whole_file else self.before
        texts.append((self._part_name, _decoded(bytes(self._text), self._part_name)))
        self._text = bytearray()

    def _end(self) -> None:
        self._is_complete = True

    def _count_text(self, size: int) -> None:
        self._text_bytes += size
        if self._text_bytes > self._max_text_bytes:
            raise HttpError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "request_too_large",
                f"all fields but {self._name} must have at most {self._max_text_bytes} bytes",
            )


def _refuse_other_sites(request: Request) -> None:
    """Refuses the forms that a browser sends for a page of another site without asking."""
    origin = request.headers.get("origin")
    if origin is None or "authorization" in request.headers:
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        shown = shortened(repr(origin), 64)
        message = f"pages of other sites must send a bearer token, got a form from {shown}"
        raise HttpError(HTTPStatus.FORBIDDEN, "other_site", message)


def _boundary(request: Request) -> bytes:
    _, parameters = parse_options_header(request.headers["content-type"])
    boundary = parameters.get(b"boundary", b"")
    # As in RFC 2046; longer ones slow parsers down.
    if not 1 <= len(boundary) <= 70:
        raise _invalid(f"its boundary must have from 1 to 70 characters, got {len(boundary)}")
    return boundary


def _decoded(content: bytes, what: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _invalid(f"{shortened(what, 64)} must be UTF-8") from error


def _invalid(message: str) -> HttpError:
    message = f"the body must be a multipart form: {message}"
    return HttpError(HTTPStatus.BAD_REQUEST, "invalid_form", message)
