"""Generation by a T5 of the small size, against what else runs it on a CPU: `make bench-t5`.

As in `generation`, contestants run in environments and processes of their own (`peer_*.py`), answer
the same questions (`generation.contestant`; what is called a prompt there is a source here), and
are called in turn, round after round.
"""
