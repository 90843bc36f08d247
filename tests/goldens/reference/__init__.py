"""Code that makes the golden files, one concern per module.

``checkpoints`` draws the tiny checkpoints; ``model`` runs the reference and says whether a result
is safe to compare with; ``greedy``, ``options`` and ``distributions`` choose the cases of one kind
each; ``files`` puts them into a JSON file.
"""
