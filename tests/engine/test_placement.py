"""Runs are placed in one batch of a graph's shape, and their neighbours stay where they are."""

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

from harness.engine import GOLDENS, Options, cached
from shaperouter_service.decoding import Batch, Shape
from shaperouter_service.models import Model, load_model
from shaperouter_service.worker.placement import place
from shaperouter_service.worker.run import Run, Timings


@pytest.fixture(scope="module")
def model() -> Model:
    return load_model("tiny", GOLDENS / "gpt2-untied", "float32")


def _runs(model: Model, *prompts: Sequence[int], rows: int, length: int) -> list[Run]:
    """Runs in the first rows of a new batch; the caches of each are filled by its prompt."""
    batch = Batch(model, rows=rows, beams=1, length=length)
    runs = []
    for row, prompt in enumerate(prompts):
        options = Options.of(max_new_tokens=8)
        batch.begin(row, prompt, options)
        run = Run(
            client="test",
            lane_beams=0,
            request_id=str(prompt),
            token_ids=prompt,
            max_new_tokens=8,
            eos_token_ids=(),
            num_beams=1,
            num_return_sequences=1,
            logprobs=None,
            options=options,
            emit=lambda event: None,
            timings=Timings(arrived=0.0),
            batch=batch,
            row=row,
        )
        for handle in batch.caches.tokens:
            values = cached(handle).copy()
            values[row, :, :, : len(prompt)] = prompt[0]
            tf.raw_ops.AssignVariableOp(resource=handle, value=values)
        runs.append(run)
    return runs


def _assert_whole(*runs: Run) -> None:
    """Checks that the row of each run has its values."""
    assert len({(id(run.batch), run.row) for run in runs}) == len(runs)
    for run in runs:
        assert run.batch is not None
        length = len(run.token_ids)
        assert run.batch.state.tokens[run.row, 0, :length].tolist() == list(run.token_ids)
        assert run.batch.state.lengths[run.row] == length
        for handle in run.batch.caches.tokens:
            np.testing.assert_array_equal(
                cached(handle)[run.row, :, :, :length], float(run.token_ids[0])
            )


def _placed(runs: list[Run], neighbours: list[Run], shape: tuple[int, int]) -> Batch:
    batch = place(runs, neighbours, Shape(*shape))
    assert batch.shape == Shape(*shape)
    assert {run.batch for run in runs} == {batch}
    _assert_whole(*neighbours)
    return batch


def test_runs_in_a_batch_of_the_shape_stay_there(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    before = [(run.batch, run.row) for run in runs]
    _placed(runs, runs, (2, 16))
    assert [(run.batch, run.row) for run in runs] == before


def test_a_batch_takes_a_larger_shape(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    before = runs[0].batch
    assert _placed(runs, runs, (4, 32)) is before


def test_rows_of_ended_runs_are_dropped(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], [4, 5, 6], [7], rows=4, length=16)
    left = [runs[1], runs[3]]
    _placed(left, left, (2, 16))
    assert [run.row for run in left] == [0, 1]


def test_an_arriving_run_takes_a_free_row(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], [4, 5], [6], rows=4, length=16)
    arrival = _runs(model, [9, 9, 9], rows=1, length=8)
    there = [runs[0], runs[1], runs[3], *arrival]
    batch = runs[0].batch
    assert _placed(there, there, (4, 16)) is batch
    assert arrival[0].row == 2


def test_an_arriving_run_enlarges_the_batch(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    arrival = _runs(model, [9, 9, 9], rows=1, length=8)
    _placed([*runs, *arrival], [*runs, *arrival], (4, 16))


def test_the_larger_group_stays_and_the_others_move(model: Model) -> None:
    few = _runs(model, [1, 2], rows=1, length=32)
    most = _runs(model, [3], [4, 5], rows=2, length=16)
    batch = most[0].batch
    assert _placed([*few, *most], [*few, *most], (4, 32)) is batch


@pytest.mark.parametrize("shape", [(1, 16), (1, 32), (2, 16)])
def test_runs_that_leave_their_neighbours_get_a_new_batch(
    model: Model, shape: tuple[int, int]
) -> None:
    runs = _runs(model, [1, 2], [3], [4, 5, 6], rows=4, length=16)
    (old,) = {run.batch for run in runs}
    leaving, staying = runs[:1], runs[1:]
    assert _placed(leaving, runs, shape) is not old
    assert [(run.batch, run.row) for run in staying] == [(old, 1), (old, 2)]
    assert old is not None
    assert old.shape == Shape(4, 16)


def test_neighbours_can_share_a_batch_of_the_shape(model: Model) -> None:
    """A graph advances only the given rows, so other runs can stay in its batch."""
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    before = runs[0].batch
    assert _placed(runs[:1], runs, (2, 16)) is before


def test_runs_without_room_beside_neighbours_move_to_a_new_batch(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    arrival = _runs(model, [9, 9], rows=1, length=16)
    old = runs[0].batch
    together = [runs[0], *arrival]
    assert _placed(together, [*runs, *arrival], (2, 16)) is not old
    assert (runs[1].batch, runs[1].row) == (old, 1)


def test_a_run_without_a_batch_is_an_error(model: Model) -> None:
    (run,) = _runs(model, [1, 2], rows=1, length=16)
    run.batch = None
    with pytest.raises(ValueError, match=r"run \[1, 2\] is in no batch"):
        place([run], [run], (1, 16))


@pytest.mark.parametrize("shape", [(2, 16), (4, 32)])
def test_runs_that_must_be_alone_share_no_batch(model: Model, shape: tuple[int, int]) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    old = runs[0].batch
    batch = place(runs[:1], runs, Shape(*shape), alone=True)
    assert batch is not old
    assert runs[1].batch is old
    _assert_whole(*runs)


def test_runs_that_are_alone_stay_in_their_batch(model: Model) -> None:
    runs = _runs(model, [1, 2], [3], rows=2, length=16)
    before = runs[0].batch
    assert place(runs, runs, Shape(2, 16), alone=True) is before
