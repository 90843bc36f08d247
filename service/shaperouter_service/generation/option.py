"""One generation option: a row of the table in `table`, from which all its handling derives."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum, auto
from typing import Any

# Largest values of the integers in messages.
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1

# Stands for what most options have; see `Option`.
USUAL = "usual"

# Stands for no token; never equal to a token id.
NO_TOKEN = -1


class EarlyStopping(IntEnum):
    """When beam search stops; see the message of that name."""

    HEURISTIC = 0
    FIRST = 1
    NEVER = 2


# Transformers' values of early_stopping.
EARLY_STOPPING: Mapping[bool | str, EarlyStopping] = {
    False: EarlyStopping.HEURISTIC,
    True: EarlyStopping.FIRST,
    "never": EarlyStopping.NEVER,
}


class Kind(Enum):
    """Type of an option's values in Python."""

    FLAG = auto()  # bool
    COUNT = auto()  # int of 32 bits
    SEED = auto()  # int of 64 bits
    NUMBER = auto()  # float
    TOKEN = auto()  # a token id, or NO_TOKEN
    LANGUAGE = auto()  # str, a code that the model's tokenizer knows
    EARLY_STOPPING = auto()  # EarlyStopping
    TOKENS = auto()  # a sequence of token ids
    TEXT = auto()  # str
    TEXTS = auto()  # a sequence of str
    LOGIT_BIAS = auto()  # a sequence of pairs of token id and float
    WORDS = auto()  # a sequence of str, to tokenize
    RUNS = auto()  # a sequence of sequences of token ids


class Group(StrEnum):
    """Topics of options; the headings of help and documents."""

    LENGTH = "Length and end"
    SAMPLING = "Sampling"
    BEAMS = "Beam search and several sequences"
    PENALTIES = "Penalties and bans"
    STRUCTURE = "Structured output"
    RESULT = "Result"


class Needs(Enum):
    """Without this, a request must not give an option, and a default of it has no effect."""

    SAMPLING = auto()
    BEAMS = auto()
    ENCODER = auto()


class ModelLimit(StrEnum):
    """A limit that each model has for itself: an attribute of `ServedModel`."""

    VOCABULARY = "vocab_size"
    BEAMS = "max_beams"


@dataclass(frozen=True, kw_only=True)
class Range:
    """The numbers that an option may be.

    Attributes:
        low: Its lower end.
        high: Its upper end; None for the largest number of its type.
        above: Whether `low` itself is outside.
        below: Whether `high` itself is outside.
    """

    low: float
    high: float | ModelLimit | None = None
    above: bool = False
    below: bool = False

    def contains(self, value: float, high: float) -> bool:
        """Whether a value is in the range, whose upper end is `high`; NaN never is."""
        over = value > self.low if self.above else value >= self.low
        return over and (value < high if self.below else value <= high)

    def rule(self, high: str | None) -> str:
        """The range in words, for an error."""
        return self.phrase(shown(self.low), high)

    def phrase(self, low: str, high: str | None) -> str:
        """The range in words, with its ends as given; None for no upper end."""
        if high is None:
            return f"at least {low}"
        if not self.above and not self.below:
            return f"from {low} to {high}"
        begin = "above" if self.above else "at least"
        end = "below" if self.below else "at most"
        return f"{begin} {low} and {end} {high}"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: Name of its field in `GenerationOptions`.
        kind: What values it has.
        group: What it is about.
        help: What it does, in a sentence or more without the range and the default. Names of
            options are in backquotes.
        range: What a number may be.
        max_items: Maximum length of a list.
        limits: Limits of a list in words, besides its length.
        neutral: Value without an effect; unused rows have it on the device.
        means: What `neutral` means, if it is an end of the range that people should know.
        default: Value if neither the request nor the checkpoint gives one: `neutral` unless stated,
            None for none.
        default_help: The default in words, where it is not `default`.
        checkpoint: Key of generation_config.json that gives the default: the name unless stated,
            empty for none.
        needs: What a request must have to give this option.
        hint: What to do instead of a value out of the range.
        on_device: Whether it is a tensor on the device by itself.
        command_help: `help` for the command, where that has other values.
        flag: Option of the command, where that is not its name; empty for the name.
        metavar: Its value in the command's help; empty for that of its kind.
    """

    name: str
    kind: Kind
    group: Group
    help: str
    range: Range | None = None
    max_items: int = 0
    limits: str = ""
    neutral: Any = None
    means: str = ""
    default: Any = USUAL
    default_help: str = ""
    checkpoint: str = USUAL
    needs: Needs | None = None
    hint: str = ""
    on_device: bool = True
    command_help: str = ""
    flag: str = ""
    metavar: str = ""

    def __post_init__(self) -> None:
        """Fills in what is usual."""
        for name, value in (("default", self.neutral), ("checkpoint", self.name)):
            if getattr(self, name) == USUAL:
                object.__setattr__(self, name, value)


def shown(value: float | str) -> str:
    """A value or a limit in its shortest form."""
    return f"{value:g}" if isinstance(value, float) else str(value)
