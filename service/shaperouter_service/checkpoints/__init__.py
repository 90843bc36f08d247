"""Checkpoints in the Hugging Face layout: locating, checking, reading and converting them."""
