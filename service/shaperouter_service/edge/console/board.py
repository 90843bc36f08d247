"""The rows that the page shows: made once for all watchers; each gets those that changed."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import chain
from typing import Any

from shaperouter_service.edge.console.values import (
    Row,
    graph_marks,
    graph_row,
    lattice_rows,
    loss_row,
    model_row,
    request_row,
    worker_row,
)
from shaperouter_service.routing.served_model import ServedModel
from shaperouter_service.routing.signatures import Signature
from shaperouter_service.routing.snapshots import Snapshot
from shaperouter_service.serving.call import Call
from shaperouter_service.serving.core import Core
from shaperouter_service.serving.overview import INTERVAL, may_see

# The rows of each section, by key. A row that has not changed is the same object.
Rows = Mapping[str, Row]

# A watcher that looks within this many seconds after another one sees the same rows.
_FRESH = INTERVAL / 2
# Maximum share of a core for making rows: with a large fleet they are made less often.
_MAX_SHARE = 0.01


class Board:
    """The present rows. Only the event loop may use it."""

    def __init__(self, core: Core) -> None:
        """Starts empty; no row is made before somebody looks."""
        self._core = core
        self._next_look = float("-inf")
        self._sections: dict[str, dict[str, Row]] = {
            name: {} for name in ("models", "workers", "losses", "graphs", "requests")
        }
        self._totals: Row = {}
        # The last snapshot of each worker, and the marks, key and row of each of its graphs.
        self._snapshots: dict[str, Snapshot] = {}
        self._graphs: dict[str, dict[Signature, tuple[tuple[object, ...], str, Row]]] = {}
        # The ladders of each model's revisions, and the lattices that they form.
        self._lattices: dict[str, tuple[object, list[Row]]] = {}

    def look(self) -> tuple[Mapping[str, Rows], Row]:
        """The rows of all sections, and the totals."""
        if (begun := time.monotonic()) >= self._next_look:
            self._refresh()
            taken = time.monotonic() - begun
            self._next_look = begun + max(_FRESH, taken / _MAX_SHARE)
        return self._sections, self._totals

    def _refresh(self) -> None:
        overview = self._core.overview
        snapshots = {snapshot.worker: snapshot for snapshot in overview.snapshots()}
        sections = self._sections
        models = {model.name: self._model(model) for model in self._core.models.loaded()}
        for name in self._lattices.keys() - models.keys():
            del self._lattices[name]
        sections["models"] = _kept(sections["models"], models)
        workers = {name: worker_row(snapshot) for name, snapshot in snapshots.items()}
        sections["workers"] = _kept(sections["workers"], workers)
        losses = {f"{loss.at}{loss.worker}": loss_row(loss) for loss in overview.losses()}
        sections["losses"] = _kept(sections["losses"], losses)
        sections["graphs"] = dict(self._graph_rows(snapshots))
        known = sections["requests"]
        sections["requests"] = {
            record.request_id: known[record.request_id]
            # The row of a request does not change after the request has ended.
            if record.has_ended and "code" in known.get(record.request_id, ())
            else request_row(record.summary())
            for record in overview.requests()
        }
        self._totals = asdict(overview.counts()) | {"refusals": dict(overview.refusals())}

    def _model(self, model: ServedModel) -> Row:
        ladders = [
            (revision.name, revision.call.ladders if revision.call else revision.ladders)
            for revision in self._core.models.revisions(model.name)
        ]
        known = self._lattices.get(model.name)
        if known is None or known[0] != ladders:
            signatures = (each.signatures(name) for name, each in ladders if each)
            known = ladders, lattice_rows(chain.from_iterable(signatures))
            self._lattices[model.name] = known
        return model_row(model, [name for name, _ in ladders], known[1])

    def _graph_rows(self, snapshots: Mapping[str, Snapshot]) -> Iterator[tuple[str, Row]]:
        for name in self._snapshots.keys() - snapshots.keys():
            del self._graphs[name]
        for name, snapshot in snapshots.items():
            if snapshot is not self._snapshots.get(name):
                self._graphs[name] = self._graphs_of(snapshot)
            yield from ((key, row) for _, key, row in self._graphs[name].values())
        self._snapshots = dict(snapshots)

    def _graphs_of(
        self, snapshot: Snapshot
    ) -> dict[Signature, tuple[tuple[object, ...], str, Row]]:
        known = self._graphs.get(snapshot.worker, {})
        graphs = {}
        for graph in snapshot.graphs:
            signature, marks = graph.signature, graph_marks(graph)
            before = known.get(signature)
            if before is None or before[0] != marks:
                before = marks, f"{graph.worker} {signature}", graph_row(graph)
            graphs[signature] = before
        return graphs


class Watcher:
    """A caller that watches a board, and the rows that it has seen."""

    def __init__(self, board: Board, call: Call) -> None:
        """Starts having seen nothing; the call says whose requests it may see."""
        self._board = board
        self._call = call
        self._seen: dict[str, Rows] = {}
        self._totals: Row = {}

    def news(self) -> Row | None:
        """The rows that have changed and the keys that have gone, by section; None if none have."""
        sections, totals = self._board.look()
        changed: Row = {}
        gone: Row = {}
        for name, rows in sections.items():
            visible = rows if name != "requests" else self._visible(rows)
            seen = self._seen.get(name, {})
            if new := {key: row for key, row in visible.items() if seen.get(key) is not row}:
                changed[name] = new
            if old := [key for key in seen if key not in visible]:
                gone[name] = old
            self._seen[name] = visible
        if not changed and not gone and totals == self._totals:
            return None
        self._totals = totals
        return {"at": round(time.time(), 3), "changed": changed, "gone": gone, "totals": totals}

    def _visible(self, requests: Rows) -> Rows:
        return {key: row for key, row in requests.items() if may_see(self._call, row["client"])}


def _kept(before: Mapping[str, Row], now: dict[str, Row]) -> dict[str, Row]:
    """The new rows; a row that equals its predecessor stays the same object."""
    return {key: before[key] if before.get(key) == row else row for key, row in now.items()}


def hello(core: Core, call: Call) -> dict[str, Any]:
    """The first event for a watcher: who it is, and what this service has."""
    quota = call.quota
    return {
        "client": quota.name if quota else "",
        "operator": quota is None or quota.client.operator,
        "repository": core.repository.exists,
        "trace_url": core.trace_url,
    }
