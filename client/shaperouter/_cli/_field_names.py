"""Errors in the words of the command line: its options instead of the fields of requests."""

import re
from collections.abc import Mapping

import click

from shaperouter._errors import InvalidArgumentError

# Messages that fields of options are in.
_PREFIX = r"(?:options|audio)\."


def in_flags(error: InvalidArgumentError, names: Mapping[str, str]) -> str:
    """The text of an error, with the names that the command line has for fields.

    Args:
        error: Names fields, in its violations and in their descriptions.
        names: What fields are called on the command line; see `names_of`.
    """
    if not error.violations:
        return _renamed(str(error), names)
    return "; ".join(
        f"{_field(violation.field, names)}: {_renamed(violation.description, names)}"
        for violation in error.violations
    )


def names_of(command: click.Command, others: Mapping[str, str]) -> Mapping[str, str]:
    """What the fields of a command's requests are called on its command line.

    Args:
        command: Its options are named as the fields they become.
        others: Fields that no option is named as.
    """
    options = (each for each in command.params if isinstance(each, click.Option))
    named = {
        str(option.name): "/".join((option.opts[-1], *option.secondary_opts)) for option in options
    }
    return named | dict(others)


def _field(field: str, names: Mapping[str, str]) -> str:
    """A field by its name here; what follows the name, such as an index, stays."""
    path = field.replace("-", "_")
    for known in (path, re.sub(f"^{_PREFIX}", "", path)):
        # The longest first, as `token_ids.ids` begins with `token_ids`.
        for name in sorted(names, key=len, reverse=True):
            if re.match(rf"{re.escape(name)}(?!\w)", known):
                return names[name] + known.removeprefix(name)
    return field


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Text about fields; a bare name that is also a word, such as `stop`, is taken for the word."""

    def renamed(match: re.Match[str]) -> str:
        is_field = match["prefix"] or "_" in match["name"]
        return names.get(match["name"], match[0]) if is_field else match[0]

    return re.sub(rf"(?<![\w.-])(?P<prefix>{_PREFIX})?(?P<name>[a-z][a-z_]*)\b", renamed, text)
