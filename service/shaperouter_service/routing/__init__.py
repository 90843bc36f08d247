"""Signatures, ladders and the catalog: pure, without I/O and without TensorFlow."""
