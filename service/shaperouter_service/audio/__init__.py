"""Recordings: decoding, limits, and what Whisper hears of them. Needs no TensorFlow."""
