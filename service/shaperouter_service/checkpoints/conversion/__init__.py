"""Turns checkpoints of other layouts into the Hugging Face layout, which is what models load."""

from shaperouter_service.checkpoints.conversion.directory import convert_directory

__all__ = ["convert_directory"]
