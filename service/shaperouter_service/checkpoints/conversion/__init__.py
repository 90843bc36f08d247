"""Conversion of other checkpoint layouts to the Hugging Face layout, which models load."""

from shaperouter_service.checkpoints.conversion.directory import convert_directory

__all__ = ["convert_directory"]
