"""Tensors of calls, and what a model that is called once takes and gives: pure.

A tensor is a NumPy array. Texts and other bytes are arrays of `bytes` objects.
"""
