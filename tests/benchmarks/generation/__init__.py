"""Generation with GPT-2's small size against other systems on a CPU: `make bench`.

Contestants run in environments and processes of their own (`peer_*.py`) and answer questions
(`contestant.py`). The conductor calls them in turn, round after round, so that whatever the machine
is doing meets all of them alike. `python -m generation --help` tells the rest.
"""
