"""Real texts to search: the documentation in the source of Python's standard library."""

import ast
import random
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Packages of tests and of programs, whose documentation is not for readers.
_SKIPPED = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Words of a query, and the fewest of a passage.
_QUERY_WORDS, _PASSAGE_WORDS = range(4, 26), 15


@dataclass(frozen=True, kw_only=True)
class Search:
    """Queries, and the passages that they search.

    Attributes:
        queries: First lines of documentation. That of query `i` continues with passage `i`.
        passages: The rest of it, of these queries and of others.
    """

    queries: Sequence[str]
    passages: Sequence[str]


def documentation(queries: int, passages: int) -> Search:
    """This many passages of the standard library, drawn from a seed, and queries for the first."""
    found = list(_pairs(Path(sysconfig.get_paths()["stdlib"])))
    firsts, rests = (Counter(texts) for texts in zip(*found, strict=True))
    # What is there twice would have two right answers.
    pairs = [pair for pair in found if firsts[pair[0]] == rests[pair[1]] == 1]
    drawn = random.Random(0).sample(pairs, passages)
    return Search(
        queries=[first for first, _ in drawn[:queries]], passages=[rest for _, rest in drawn]
    )


def _pairs(library: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(library.rglob("*.py")):
        if _SKIPPED.isdisjoint(path.relative_to(library).parts):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, _DOCUMENTED):
                    first, _, rest = (ast.get_docstring(node) or "").partition("\n\n")
                    words, more = first.split(), rest.split()
                    if len(words) in _QUERY_WORDS and len(more) >= _PASSAGE_WORDS:
                        yield " ".join(words), " ".join(more)
