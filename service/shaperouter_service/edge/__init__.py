"""Doors: one folder for each protocol, which translates calls to `serving` and its events back."""
