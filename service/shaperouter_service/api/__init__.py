"""Validation and defaults of options."""
