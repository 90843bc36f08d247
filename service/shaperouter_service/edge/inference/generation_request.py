"""Requests to generate text, from tensors, parameters and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shaperouter_service.edge.inference.generation_inputs import (
    EMPTY_FINAL,
    EXCLUDE_INPUT,
    JSON_OPTIONS,
    KINDS,
    LISTS,
    LOG_PROBS,
    LOGPROB,
    OPTION_NAMES,
    OUTPUTS,
    PROMPT_LOGPROBS,
    STREAM,
    TEXT,
    TYPES,
)
from shaperouter_service.edge.inference.requests import Array, InferRequest
from shaperouter_service.edge.option_values import option_value
from shaperouter_service.errors import InvalidRequestError, Violation, shortened
from shaperouter_service.generation.inputs import Input
from shaperouter_service.generation.limits import MAX_TEXT_REQUEST_BYTES
from shaperouter_service.generation.option import Kind, Needs
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.generation.request import GenerationRequest
from shaperouter_service.system.strict_json import parse
from shaperouter_service.tensors.dtypes import DType

# Maximum characters of a name or value from a caller in an error.
_SHOWN = 64
# Outputs that there are only with an option, and that option.
_ASKED_BY = {LOGPROB: "logprobs", PROMPT_LOGPROBS: "prompt_logprobs"}
# Options whose empty words are none: TensorRT-LLM's clients send one in place of no words.
_WORDS = ("stop", "bad_words")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A request to generate, and how to answer it.

    Attributes:
        request: The request.
        id: The caller's id of the request.
        streams: Whether to answer as text is generated.
        excludes_input: Whether the text of an answer leaves out a prompt that it continues.
        outputs: Names of the tensors to answer with.
        names: The caller's names of options, by our own.
    """

    request: GenerationRequest
    id: str
    streams: bool
    excludes_input: bool
    outputs: frozenset[str]
    names: Mapping[str, str]

    def in_callers_words(self, error: InvalidRequestError) -> InvalidRequestError:
        """An error of the core, with the caller's names of options."""
        return InvalidRequestError(
            *(replace(each, field=self._callers_field(each.field)) for each in error.violations)
        )

    def _callers_field(self, field: str) -> str:
        option, bracket, rest = field.removeprefix("options.").partition("[")
        return f"{self.names.get(option, option)}{bracket}{rest}"


def check_size(size: int) -> None:
    """Checks the bytes of a request to generate: tensors of functions may be larger.

    Raises:
        InvalidRequestError: It is too large.
    """
    if size > MAX_TEXT_REQUEST_BYTES:
        description = (
            f"must have at most {MAX_TEXT_REQUEST_BYTES} bytes to generate text, got {size}"
        )
        raise InvalidRequestError(Violation(field="request", description=description))


def generation_from_request(request: InferRequest) -> Generation:
    """Reads a request to generate.

    Raises:
        InvalidRequestError: A tensor or parameter is unknown, missing or not of its type, or has
            two values.
    """
    given = _Given()
    for name, array in request.inputs.items():
        given.add_tensor(name, array)
    for name, value in request.fields.items():
        given.add(name, value, name)
    for name, value in request.parameters.items():
        given.add(name, value, f"parameters.{name}")
    text = given.text(TEXT)
    if text is None and not given.violations:
        given.refuse(TEXT, "is required")
    given.add_json(given.text(JSON_OPTIONS))
    streams = bool(given.flag(STREAM))
    excludes_input = given.flag(EXCLUDE_INPUT)
    if excludes_input is None:
        # As in Triton's backend for vLLM.
        excludes_input = streams
    given.flag(EMPTY_FINAL)
    options, names = given.options()
    requested = [output.name for output in request.outputs]
    for index, output in enumerate(request.outputs):
        if output.name not in OUTPUTS:
            known = ", ".join(OUTPUTS)
            shown = shortened(output.name, _SHOWN)
            given.refuse(f"outputs[{index}]", f"must be one of {known}, got {shown!r}")
        for option in output.parameters:
            shown = shortened(option, _SHOWN)
            given.refuse(f"outputs[{index}]", f"must have no parameters, got {shown!r}")
    if given.flag(LOG_PROBS):
        options.setdefault("logprobs", 0)
    options |= {
        option: 0
        for output, option in _ASKED_BY.items()
        if output in requested and option not in options
    }
    given.refuse_likeliest(options, names)
    if given.violations:
        raise InvalidRequestError(*given.violations)
    outputs = frozenset(requested or OUTPUTS)
    outputs -= {output for output, option in _ASKED_BY.items() if option not in options}
    return Generation(
        request=GenerationRequest(
            model=request.model,
            input=Input(text_field=TEXT, text=text, ids_field="token_ids", token_ids=None),
            decoder_input=Input(
                text_field="decoder_text",
                text=None,
                ids_field="decoder_token_ids",
                token_ids=None,
            ),
            options=options,
            reads_along=streams,
        ),
        id=request.id,
        streams=streams,
        excludes_input=excludes_input,
        outputs=outputs,
        names=names,
    )


class _Given:
    """The values that a request gives, by name, and what is wrong with them.

    Attributes:
        violations: What is wrong.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        # Each value, and where it was given.
        self._values: dict[str, tuple[Any, str]] = {}

    def refuse(self, field: str, description: str) -> None:
        """Notes that something is wrong."""
        self.violations.append(Violation(field=field, description=description))

    def add(self, name: str, value: Any, field: str) -> None:
        """Adds a value, as it was given in this field."""
        field = shortened(field, _SHOWN)
        if not self._is_known(name, field):
            return
        if name not in self._values:
            self._values[name] = value, field
            return
        first, where = self._values[name]
        if type(first) is not type(value) or first != value:
            self.refuse(field, f"must equal {where}, got {_told(value)} and {_told(first)}")

    def add_tensor(self, name: str, array: Array) -> None:
        """Adds the value of a tensor."""
        field = f"inputs.{name}"
        if not self._is_known(name, field):
            return
        kind = KINDS.get(name, Kind.TEXT)
        allowed, dtype = TYPES.get(kind, ()), DType.of(array)
        if not allowed:
            self.refuse(field, f"must be in the JSON of {JSON_OPTIONS}, got a tensor")
            return
        if dtype not in allowed:
            names = ", ".join(dict.fromkeys(allowed))
            self.refuse(field, f"must be {names}, got {dtype}")
            return
        values = array.ravel().tolist()
        if dtype is DType.BYTES:
            try:
                values = [value.decode() for value in values]
            except UnicodeDecodeError as error:
                self.refuse(field, f"must be UTF-8, got byte 0x{error.object[error.start]:02x}")
                return
        if kind in LISTS:
            self.add(name, values, field)
        elif len(values) != 1:
            self.refuse(field, f"must have 1 element, got {len(values)}")
        else:
            self.add(name, values[0], field)

    def add_json(self, text: str | None) -> None:
        """Adds the options of a JSON object; None if the request has none."""
        if text is None:
            return
        try:
            options = parse(text)
        except ValueError as error:
            self.refuse(JSON_OPTIONS, f"must be JSON: {shortened(str(error), _SHOWN)}")
            return
        if not isinstance(options, dict):
            self.refuse(JSON_OPTIONS, f"must be a JSON object, got {_told(options)}")
            return
        for name, value in options.items():
            if value is not None:
                self.add(name, value, f"{JSON_OPTIONS}.{name}")

    def text(self, name: str) -> str | None:
        """A text; None if it was not given or is none."""
        value, field = self._values.get(name, (None, ""))
        if field and not isinstance(value, str):
            self.refuse(field, f"must be a text, got {_told(value)}")
        return value if isinstance(value, str) else None

    def flag(self, name: str) -> bool | None:
        """A flag; None if it was not given or is none."""
        value: bool | None = self._value(name, Kind.FLAG)
        return value

    def options(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The options by our names, and the names by which they were given."""
        options: dict[str, Any] = {}
        names: dict[str, str] = {}
        for name in self._values:
            option = OPTION_NAMES.get(name, "")
            if not option:
                continue
            value = self._value(name, OPTIONS[option].kind)
            if value is None:
                continue
            if option in _WORDS:
                value = tuple(filter(None, value))
            if option in options and options[option] != value:
                self.refuse(name, f"must equal {names[option]}, which is the same option")
            options[option], names[option] = value, name
        return _as_meant(options), names

    def refuse_likeliest(self, options: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Refuses likeliest tokens beside those of the prompt, which no tensor has room for."""
        if count := options.get("prompt_logprobs"):
            rule = "must be 0, because no tensor has room for the likeliest tokens"
            self.refuse(names["prompt_logprobs"], f"{rule}, got {count}")

    def _is_known(self, name: str, field: str) -> bool:
        """Whether there is such a name; if not, this notes that it is unknown."""
        if name in KINDS or name in (TEXT, JSON_OPTIONS):
            return True
        description = "is unknown; ModelMetadata lists what the model takes"
        self.refuse(shortened(field, _SHOWN), description)
        return False

    def _value(self, name: str, kind: Kind) -> Any:
        """A value of a kind; None if it was not given or is none."""
        if name not in self._values:
            return None
        value, field = self._values[name]
        try:
            return option_value(kind, value)
        except ValueError as error:
            self.refuse(field, str(error))
            return None


def _as_meant(options: dict[str, Any]) -> dict[str, Any]:
    """Options with our values where those of Triton's backends mean something else."""
    if options.get("top_k") == -1:
        options["top_k"] = 0
    if options.get("temperature") == 0 and not options.get("do_sample"):
        # Greedy decoding, whatever the other options of sampling are.
        for name in [name for name in options if OPTIONS[name].needs is Needs.SAMPLING]:
            del options[name]
        options["do_sample"] = False
    if options.get("num_beams", 1) == 1:
        # Their clients send the neutral values of all options.
        for name, option in OPTIONS.items():
            if option.needs is Needs.BEAMS and options.get(name, 0) == option.neutral:
                options.pop(name, None)
    return options


def _told(value: Any) -> str:
    return shortened(repr(value), _SHOWN)
