"""Placing runs in the rows of a batch, so that one graph can advance them together."""

from collections import Counter
from collections.abc import Collection, Sequence

from shaperouter_service.decoding import Batch, Shape
from shaperouter_service.worker.run import Run


def place(
    runs: Sequence[Run], neighbours: Collection[Run], shape: Shape, *, alone: bool = False
) -> Batch:
    """Brings runs together in a batch of a shape.

    Usually they are together already. When the shape changes, unused rows are dropped, so that they
    cost nothing any more.

    Args:
        runs: At least one run and at most as many as the shape has rows, each in some batch.
        neighbours: All runs that are in batches; those that are not in `runs` stay where they are.
        shape: The shape of the graph.
        alone: Whether the batch may have no other runs, because prefill writes to all of its rows.

    Returns:
        The batch. `batch` and `row` of each run are updated.
    """
    (batch, _), *_ = Counter(_batch_of(run) for run in runs).most_common()
    settled = [run for run in runs if run.batch is batch]
    arrivals = [run for run in runs if run.batch is not batch]
    others = [run for run in neighbours if run.batch is batch and run not in settled]
    taken = {run.row for run in (*settled, *others)}
    rows = shape.rows
    if batch.shape != shape or len(taken) + len(arrivals) > rows or (alone and others):
        if others:
            arrivals = list(runs)
            batch = Batch.of_shape(batch.model, shape, beams=batch.beams)
            taken = set()
        else:
            batch.reshape([run.row for run in settled], shape)
            for row, run in enumerate(settled):
                run.row = row
            taken = set(range(len(settled)))
    free = (row for row in range(rows) if row not in taken)
    for run in arrivals:
        row = next(free)
        batch.copy_row(row, _batch_of(run), run.row)
        run.batch, run.row = batch, row
    return batch


def _batch_of(run: Run) -> Batch:
    if run.batch is None:
        raise ValueError(f"run {run.request_id} is in no batch")
    return run.batch
