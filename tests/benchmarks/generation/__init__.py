"""Benchmark of generation with GPT-2's small size against other systems on a CPU: `make bench`.

Each contestant runs in its own environment and process (`peer_*.py`) and answers questions
(`contestant.py`). The conductor calls the contestants in turn, round after round, so that other
load on the machine affects all of them alike. `python -m generation --help` lists the options.
"""
