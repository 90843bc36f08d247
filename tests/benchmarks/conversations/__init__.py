"""Benchmark of conversations, whose turns extend each other: `make bench-conversations`.

Callers hold conversations with servers in turn (`callers.py`, a process of its own): the service
with and without its prefix cache, CTranslate2, and llama.cpp's server with its prompt cache. All
run from the start to the end and are called in rounds, one at a time.
`python -m conversations --help` lists the options.
"""
