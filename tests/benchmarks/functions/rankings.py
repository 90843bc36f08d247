"""How rankings of passages compare, between embeddings in float32 and in fewer bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from common.tables import Table

# Passages of a ranking that are compared.
TOP = 10


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """The rankings that embeddings give.

    Attributes:
        scores: Cosine of each passage to each query; [queries, passages].
        top: Indices of the best passages, best first; [queries, TOP].
    """

    scores: np.ndarray
    top: np.ndarray

    @classmethod
    def of(cls, vectors: Sequence[Sequence[float]], queries: int) -> "Ranked":
        """Ranks the passages for each query.

        Args:
            vectors: Embeddings of length 1: of the queries, then of the passages.
            queries: Number of queries.
        """
        embedded = np.array(vectors)
        scores = embedded[:queries] @ embedded[queries:].T
        top = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
        return cls(scores=scores, top=top)

    def found(self, within: int) -> float:
        """The share of queries whose own passage is among the first."""
        own = np.arange(len(self.top))[:, np.newaxis]
        return float((self.top[:, :within] == own).any(axis=1).mean())

    def agreement(self, reference: "Ranked") -> "Agreement":
        """How much these rankings agree with others of the same texts."""
        places = self.top[:, :, np.newaxis] == reference.top[:, np.newaxis, :]
        # The best passage of the reference is worth TOP, the last of its first ones 1.
        worth = np.arange(TOP, 0, -1)
        discounts = 1 / np.log2(np.arange(2, TOP + 2))
        gains = (places * worth).sum(axis=2)
        theirs = np.take_along_axis(self.scores, reference.top, axis=1)
        better, worse = np.triu_indices(TOP, k=1)
        return Agreement(
            first=float(places[:, 0, 0].mean()),
            overlap=float(places.any(axis=2).mean()),
            tau=float(np.sign(theirs[:, better] - theirs[:, worse]).mean()),
            ndcg=float((gains @ discounts).mean() / (worth @ discounts)),
        )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How much rankings agree with those of a reference, as means of all queries.

    Attributes:
        first: The share of queries with the same first passage (recall@1).
        overlap: The share of the reference's first ten that are among the first ten.
        tau: Kendall's rank correlation of the reference's first ten.
        ndcg: nDCG@10, where the reference's first passage is worth 10, the second 9 and so on.
    """

    first: float
    overlap: float
    tau: float
    ndcg: float


def rankings_table(ranked: Mapping[str, Ranked], reference: str) -> Table:
    """Compares rankings, by contestant, with those of one of them."""
    rows = []
    for label, each in ranked.items():
        agreement = each.agreement(ranked[reference])
        figures = (agreement.first, agreement.overlap, agreement.tau, agreement.ndcg)
        own = (each.found(1), each.found(TOP))
        rows.append([label, *(f"{figure:.4f}" for figure in (*figures, *own))])
    return Table(
        title=f"Rankings, compared with those of {reference}",
        head=[
            "",
            "recall@1",
            f"overlap@{TOP}",
            f"Kendall's τ of the first {TOP}",
            f"nDCG@{TOP}",
            "own passage first",
            f"own passage in {TOP}",
        ],
        rows=rows,
        note=f"Recall@1: the share of queries with the same first passage. nDCG@{TOP} takes the "
        f"reference's first {TOP} passages as worth {TOP} to 1. The last two columns need no "
        "reference: they say how often the passage that follows the query in its source is found.",
    )
