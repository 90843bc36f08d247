"""Calls of models that answer once, functions and text encoders, and their results: pure."""
