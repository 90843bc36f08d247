"""One generation option, as the generated table in `_options` describes it."""

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """Type of an option's values."""

    FLAG = auto()  # bool
    COUNT = auto()  # int of 32 bits
    SEED = auto()  # int of 64 bits
    NUMBER = auto()  # float
    TOKEN = auto()  # a token id, or -1 for none
    LANGUAGE = auto()  # a text
    TEXT = auto()  # a text
    EARLY_STOPPING = auto()  # bool or "never"
    TOKENS = auto()  # token ids
    TEXTS = auto()  # a text or several
    LOGIT_BIAS = auto()  # numbers by token id
    WORDS = auto()  # texts or sequences of token ids


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

    Attributes:
        name: Its keyword argument, and its field of the message.
        kind: What values it has.
        group: Heading of its group in the command's help.
        flag: Option of the command.
        metavar: Placeholder for the value in the command's help.
        help: The command's help.
    """

    name: str
    kind: Kind
    group: str
    flag: str
    metavar: str
    help: str
