"""The files of the page, which are served as they are."""

import hashlib
from collections.abc import Callable, Coroutine, Iterator
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from shaperouter_service.serving.call import Call

PAGE = "index.html"

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

# The page may load its own files and call its own port; nothing in a text that it shows can run.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Browsers must ask again at each visit, so that they never show the page of an older version.
    "cache-control": "no-cache",
}

Answer = Callable[[Request, Call], Coroutine[Any, Any, Response]]


def file_answers() -> Iterator[tuple[str, Answer]]:
    """Each file's path, and what answers requests for it."""
    for file in files(__package__).joinpath("static").iterdir():
        path = "/" if file.name == PAGE else f"/console/{file.name}"
        yield path, _answer(file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])


def _answer(content: bytes, kind: str) -> Answer:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    async def answer(request: Request, _: Call) -> Response:
        headers = _HEADERS | {"etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers | {"content-type": kind})

    return answer
