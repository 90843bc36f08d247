"""The ``shaperouter`` command."""

from shaperouter._cli._main import main

__all__ = ["main"]
