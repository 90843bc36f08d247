"""Benchmark of generation with T5's small size against other systems on a CPU: `make bench-t5`.

As in `generation`, each contestant runs in its own environment and process (`peer_*.py`), answers
the same questions (`generation.contestant`, whose prompts are sources here), and is called in turn,
round after round.
"""
