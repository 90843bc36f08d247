"""The parsers that meet strangers: each takes any bytes, and reads them or refuses them.

`test_parsers.py` mutates the kept inputs; `make fuzz-coverage` searches, guided by coverage.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shaperouter_service.auth.clients import Clients
from shaperouter_service.checkpoints.model_files import check_model_directory
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.compile_cache import checksummed_file
from shaperouter_service.edge.http.openai.requests import chat_request, completion_request
from shaperouter_service.edge.http.openai.response_requests import response_request
from shaperouter_service.edge.inference.http.bodies import generate_request, infer_request
from shaperouter_service.errors import ServiceError, StartupError
from shaperouter_service.functions.settings import SETTINGS, read_settings
from shaperouter_service.generation.chat import Chat
from shaperouter_service.models.defaults import read_decoder_start, read_default_options
from shaperouter_service.models.loading import read_family
from shaperouter_service.routing import traffic_json
from shaperouter_service.speech.audio.declared import DeclaredAudio, decode_audio
from shaperouter_service.system.strict_json import parse
from shaperouter_service.text.chat_adaptation import ChatTemplateError
from shaperouter_service.text.chat_template import render_chat
from shaperouter_service.text.constraints import ConstraintError, grammar_of

GOLDENS = Path(__file__).parents[1] / "goldens"
CORPUS = Path(__file__).with_name("corpus")
RENDER_SECONDS = 0.05

PARSERS: dict[str, Callable[[bytes], None]] = {}


def parser(*refusals: type[Exception]) -> Callable[[Callable[[bytes], Any]], Any]:
    """Registers a parser, with the errors by which it refuses."""

    def register(read: Callable[[bytes], Any]) -> Callable[[bytes], None]:
        @functools.wraps(read)
        def read_or_refuse(content: bytes) -> None:
            with contextlib.suppress(*refusals):
                read(content)

        PARSERS[read.__name__] = read_or_refuse
        return read_or_refuse

    return register


def text_of(content: bytes) -> str:
    """The text of an input; doors refuse what is not UTF-8 before they parse it."""
    return content.decode(errors="replace")


def object_of(content: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    value = parse(text_of(content))
    return value if isinstance(value, dict) else {"model": value}


@contextlib.contextmanager
def written(name: str, content: bytes) -> Iterator[Path]:
    """A directory with a file."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, name).write_bytes(content)
        yield Path(directory)


# --- Callers -------------------------------------------------------------------------------------


@parser(ValueError)
def strict_json(content: bytes) -> None:
    parse(text_of(content))


@parser(ValueError, ServiceError)
def openai_completion(content: bytes) -> None:
    completion_request(object_of(content))


@parser(ValueError, ServiceError)
def openai_chat(content: bytes) -> None:
    chat_request(object_of(content))


@parser(ValueError, ServiceError)
def openai_response(content: bytes) -> None:
    response_request(object_of(content))


@parser(ServiceError)
def inference(content: bytes) -> None:
    """The first two bytes say how many of the others are JSON."""
    size = str(int.from_bytes(content[:2], "little")) if content[:2] != b"\xff\xff" else None
    infer_request(content[2:], size, model="m", version="")


@parser(ServiceError)
def inference_generation(content: bytes) -> None:
    generate_request(content, model="m", version="")


@parser(ServiceError)
def audio(content: bytes) -> None:
    for _ in decode_audio(DeclaredAudio(), content):
        pass


@parser(ConstraintError)
def json_schema(content: bytes) -> None:
    grammar_of("json_schema", text_of(content), drops_first_space=False)


@parser(ConstraintError)
def regex(content: bytes) -> None:
    grammar_of("regex", text_of(content), drops_first_space=True)


@parser(ConstraintError)
def grammar(content: bytes) -> None:
    grammar_of("grammar", text_of(content), drops_first_space=False)


# --- Authors of models ---------------------------------------------------------------------------


@parser(StartupError)
def function_settings(content: bytes) -> None:
    with written(SETTINGS, content) as directory:
        read_settings(directory)


@parser(StartupError)
def safetensors(content: bytes) -> None:
    with written("model.safetensors", content) as directory:
        (directory / "config.json").write_bytes(_config())
        Checkpoint(directory)


@parser(StartupError)
def model_config(content: bytes) -> None:
    with written("config.json", content) as directory:
        (directory / "model.safetensors").symlink_to(_checkpoint() / "model.safetensors")
        check_model_directory(directory)
        checkpoint = Checkpoint(directory)
        family = read_family(checkpoint)
        read_default_options(checkpoint, family)
        read_decoder_start(checkpoint, family)


@parser(ChatTemplateError)
def chat_template(content: bytes) -> None:
    _import_renderer()
    render_chat(_Templated(text_of(content)), _CHAT, max_seconds=RENDER_SECONDS)


_CHAT = Chat(messages=({"role": "user", "content": "Hello"},))


@functools.cache
def _import_renderer() -> None:
    """Imports all that rendering needs, which takes longer than a template may."""
    render_chat(_Templated(""), _CHAT, max_seconds=60.0)


class _Templated:
    """A tokenizer with nothing but a template."""

    def __init__(self, template: str) -> None:
        self._template = template

    def apply_chat_template(self, messages: Any, *, tools: Any, **arguments: Any) -> str:
        from transformers.utils.chat_template_utils import render_jinja_template

        arguments.pop("tokenize")
        (text,), _ = render_jinja_template(
            [messages], tools=tools, chat_template=self._template, **arguments
        )
        return str(text)


def _checkpoint() -> Path:
    return GOLDENS / "gpt2-bare"


def _config() -> bytes:
    return (_checkpoint() / "config.json").read_bytes()


# --- Disks ---------------------------------------------------------------------------------------


@parser(checksummed_file.DamagedFileError)
def compile_cache(content: bytes) -> None:
    """The first byte says whether the digest of the header is right."""
    if content[:1] == b"=":
        header = content[1:]
        digest = hashlib.blake2b(header, digest_size=32).digest()
        prefix = struct.Struct(checksummed_file._PREFIX.format)
        content = b" " + prefix.pack(checksummed_file.MAGIC, digest, len(header)) + header
    with written("entry", content[1:]) as directory:
        checksummed_file.read_header(directory / "entry")
        checksummed_file.read(directory / "entry")


@parser(traffic_json.TrafficFormatError)
def traffic_record(content: bytes) -> None:
    """The first byte says whether the record has the right version and checksum."""
    if content[:1] == b"=":
        try:
            record = json.loads(content[1:])
            checksum = traffic_json._checksum(record)
        except (ValueError, RecursionError):
            return
        whole = {"version": traffic_json.VERSION, "checksum": checksum, "traffic": record}
        content = b" " + json.dumps(whole).encode()
    traffic_json.from_json(content[1:])


# --- Operators -----------------------------------------------------------------------------------


@parser(StartupError)
def tokens(content: bytes) -> None:
    with written("tokens.toml", content) as directory:
        Clients(directory / "tokens.toml")
