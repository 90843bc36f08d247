"""Generations and transcriptions as values: requests, options, limits, events. Pure Python."""
