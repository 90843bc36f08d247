"""The version of the client, also that of its distribution."""

__version__ = "0.1.0"
