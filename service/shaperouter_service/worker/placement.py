"""Putting runs into the rows of batches, so that one graph can advance them together."""

from collections import Counter
from collections.abc import Collection, Sequence

from shaperouter_service.decoding import Batch, Shape
from shaperouter_service.worker.run import Run


def place(
    runs: Sequence[Run], neighbours: Collection[Run], shape: Shape, *, alone: bool = False
) -> Batch:
    """Brings runs together in a batch of a shape.

    Most often they are there already. If the shape changes, rows that are no longer used vanish
    with the old one, and so does the cost of decoding them.

    Args:
        runs: At least one, at most as many as the shape has rows; each in some batch.
        neighbours: All runs that are in batches; those that are not in `runs` stay where they are.
        shape: Of the graph.
        alone: Whether neighbours may not be in the same batch: prefill writes to all of it.

    Returns:
        The batch; each run's `batch` and `row` say where it is.
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
