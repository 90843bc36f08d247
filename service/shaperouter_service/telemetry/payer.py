"""Who pays for a request, where somebody has to."""

from contextvars import ContextVar
from typing import Protocol


class Payer(Protocol):
    """A client that is known by its token."""

    @property
    def name(self) -> str:
        """In logs and metrics."""

    def use(self, tokens: int) -> None:
        """Pays for tokens that were read or made."""


# Each call is a task with a context of its own.
current_payer: ContextVar[Payer | None] = ContextVar("payer", default=None)
