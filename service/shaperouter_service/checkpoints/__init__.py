"""Checkpoints in the Hugging Face layout: where they come from, reading and conversion."""
