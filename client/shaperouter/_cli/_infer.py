"""``shaperouter infer``."""

import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from shaperouter._cli._array_files import opened_for_arrays, read_arrays, write_arrays
from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import jsonable, print_json
from shaperouter._cli._routes import print_routes
from shaperouter._cli._stdin import read_stdin
from shaperouter._cli._waiting import WaitingLine
from shaperouter._errors import InvalidArgumentError
from shaperouter._model import CallSpec, DataType
from shaperouter._tensors import dtype_of, numpy

STDIN = "-"


@click.command("infer", cls=Command, field_names={"inputs": "FILE"})
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Model to call. [default: the only one of the service]",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME",
    help="Output to return; may be given several times. [default: all]",
)
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.npz",
    help="Save the outputs as arrays instead of printing them; .npz is added to another name. "
    "[default: print JSON]",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Print on stderr how the call was routed: the options and the expected time of each. "
    "[default: no]",
)
@click.pass_context
def infer(
    ctx: click.Context,
    /,
    *,
    file: str,
    model: str,
    outputs: Sequence[str],
    save: Path | None,
    explain: bool,
) -> None:
    """Call a model with the inputs in FILE, and print its outputs as JSON.

    FILE is a JSON object of nested lists by input, an .npz file of arrays by input, or an .npy file
    with the array of a model's only input; "-" reads JSON from stdin. Numbers in JSON get the
    data types that the model takes. In the output, numbers that JSON does not have (NaN and
    infinities) are null. Needs NumPy: pip install 'shaperouter[numpy]'.

    With --json, the printed object also says how the call was served.
    """
    _require_numpy()
    given = _read(file)
    if save is not None and save.suffix != ".npz":
        save = save.with_name(f"{save.name}.npz")
    # Open the file before the call, whose result would otherwise be lost.
    opened = nullcontext() if save is None else opened_for_arrays(save)
    with (
        opened as saved,
        connect(ctx) as client,
        WaitingLine(enabled=not wants_json(ctx)) as waiting,
    ):
        waiting.show(f"waiting for {client.address}")
        spec = client.model(model).call
        if spec is not None:
            given = _typed(given, spec)
        result = client.infer(model, given, outputs=outputs, explain=explain)
        if saved is not None:
            write_arrays(saved, result.outputs)
    if explain:
        print_routes(result.metadata.routes)
    if save is not None:
        click.echo(f"saved {', '.join(result.outputs)} in {save}", err=True)
        return
    printed: dict[str, object] = {name: _listed(result[name]) for name in result.outputs}
    if wants_json(ctx):
        printed = {"outputs": printed, "metadata": jsonable(result.metadata)}
    print_json(printed)


def _require_numpy() -> None:
    try:
        numpy()
    except ImportError as error:
        raise click.ClickException(str(error)) from error


def _read(file: str) -> Any:
    """The inputs by name, or a single array.

    Raises:
        InvalidArgumentError: The file cannot be read.
    """
    if Path(file).suffix in (".npy", ".npz"):
        return read_arrays(file)
    try:
        text = read_stdin("inputs") if file == STDIN else Path(file).read_text(encoding="utf-8")
        content = json.loads(text, parse_float=_finite)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgumentError.of("inputs", f"cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InvalidArgumentError.of("inputs", "must hold a JSON object of lists by input")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text:.60} is too large for a 64-bit float")
    return number


def _typed(given: Any, spec: CallSpec) -> dict[str, Any]:
    """The inputs by name; lists become arrays of the types that the model takes.

    Raises:
        InvalidArgumentError: A value does not fit its type, or an input's name is missing.
    """
    if not isinstance(given, dict):
        if len(spec.inputs) != 1:
            names = ", ".join(each.name for each in spec.inputs)
            raise InvalidArgumentError.of(
                "inputs", f"must be an .npz file or JSON, because the model takes {names}"
            )
        return {spec.inputs[0].name: given}
    types = {each.name: each.dtype for each in spec.inputs}
    return {
        name: _array(name, value, types[name])
        if isinstance(value, list | int | float) and types.get(name, DataType.BYTES) in _NUMBERS
        else value
        for name, value in given.items()
    }


_NUMBERS = frozenset(DataType) - {DataType.BYTES, DataType.UNKNOWN}


def _array(name: str, value: object, dtype: DataType) -> Any:
    np = numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidArgumentError.of(f"inputs.{name}", f"must be an array: {error}") from None
    due = dtype_of(dtype)
    # JSON's integers have no sign of their own; whether they fit is seen below.
    both_integers = array.dtype.kind in "iu" and due.kind in "iu"
    if array.size and not both_integers and not np.can_cast(array.dtype, due, "same_kind"):
        raise InvalidArgumentError.of(f"inputs.{name}", f"must be {dtype}, got {array.dtype}")
    with np.errstate(over="ignore"):  # see below
        cast = array.astype(due)
    infinite = np.isinf(cast) & np.isfinite(array)
    if infinite.any():
        value = array[infinite].flat[0]
        raise InvalidArgumentError.of(f"inputs.{name}", f"has {value}, which {dtype} cannot hold")
    if due.kind in "iu" and not np.array_equal(cast, array):
        raise InvalidArgumentError.of(f"inputs.{name}", f"has values that {dtype} cannot hold")
    return cast


def _listed(array: Any) -> object:
    """An array as nested lists; bytes as text."""
    if array.dtype == object:
        array = numpy().vectorize(lambda value: value.decode(errors="replace"), otypes=[object])(
            array
        )
    return array.tolist()
