"""Generation with T5's small size against other systems on a CPU: `make bench-t5`.

As in `generation`, contestants run in environments and processes of their own (`peer_*.py`), answer
the same questions (`generation.contestant`; what is called a prompt there is a source here), and
are called in turn, round after round.
"""
