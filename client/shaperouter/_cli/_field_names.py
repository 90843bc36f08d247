"""Errors with the options of the command line in place of the fields of requests."""

import re
from collections.abc import Mapping

import click

from shaperouter._errors import InvalidArgumentError

# Messages that contain the fields of options.
_PREFIX = r"(?:options|audio)\."


def with_option_names(error: InvalidArgumentError, names: Mapping[str, str]) -> str:
    """The text of an error, with the command line's names of fields.

    Args:
        error: An error that names fields, in its violations and in their descriptions.
        names: Names on the command line by field; see `option_names`.
    """
    if not error.violations:
        return _renamed(str(error), names)
    return "; ".join(
        f"{_field(violation.field, names)}: {_renamed(violation.description, names)}"
        for violation in error.violations
    )


def option_names(command: click.Command, others: Mapping[str, str]) -> Mapping[str, str]:
    """The names on the command line of the fields of a command's requests.

    Args:
        command: The command; its options have the names of the fields that they set.
        others: Names of fields that have no option of the same name.
    """
    options = (each for each in command.params if isinstance(each, click.Option))
    named = {
        str(option.name): "/".join((option.opts[-1], *option.secondary_opts)) for option in options
    }
    return named | dict(others)


def _field(field: str, names: Mapping[str, str]) -> str:
    """The name of a field on the command line, with an index or the like that follows it."""
    path = field.replace("-", "_")
    for known in (path, re.sub(f"^{_PREFIX}", "", path)):
        # The longest first, because `token_ids.ids` begins with `token_ids`.
        for name in sorted(names, key=len, reverse=True):
            if re.match(rf"{re.escape(name)}(?!\w)", known):
                return names[name] + known.removeprefix(name)
    return field


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Replaces the names of fields in a text, but not a name that may be a word, such as `stop`."""

    def renamed(match: re.Match[str]) -> str:
        is_field = match["prefix"] or "_" in match["name"]
        return names.get(match["name"], match[0]) if is_field else match[0]

    return re.sub(rf"(?<![\w.-])(?P<prefix>{_PREFIX})?(?P<name>[a-z][a-z_]*)\b", renamed, text)
