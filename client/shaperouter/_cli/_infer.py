"""``shaperouter infer``."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from shaperouter._cli._command import Command, connect, wants_json
from shaperouter._cli._json import jsonable, print_json
from shaperouter._cli._routes import print_routes
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
    help="Save the outputs as arrays instead of printing them. [default: print JSON]",
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
    data types that the model takes. Needs NumPy: pip install 'shaperouter[numpy]'.

    With --json, the printed object also says how the call was served.
    """
    given = _read(file)
    with connect(ctx) as client:
        spec = client.model(model).call
        if spec is not None:
            given = _typed(given, spec)
        result = client.infer(model, given, outputs=outputs, explain=explain)
    if explain:
        print_routes(result.metadata.routes)
    if save is not None:
        numpy().savez(save, **result.outputs)
        click.echo(f"saved {', '.join(result.outputs)} in {save}", err=True)
        return
    printed: dict[str, object] = {name: _listed(result[name]) for name in result.outputs}
    if wants_json(ctx):
        printed = {"outputs": printed, "metadata": jsonable(result.metadata)}
    print_json(printed)


def _read(file: str) -> Any:
    """The inputs by name, or a single array.

    Raises:
        InvalidArgumentError: The file cannot be read.
    """
    try:
        if Path(file).suffix in (".npy", ".npz"):
            # Objects in such a file could run code.
            loaded = numpy().load(file, allow_pickle=False)
            return dict(loaded) if isinstance(loaded, Mapping) else loaded
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError.of("inputs", f"cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise InvalidArgumentError.of("inputs", "must hold a JSON object of lists by input")
    return content


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
    if array.size and not np.can_cast(array.dtype, due, "same_kind"):
        raise InvalidArgumentError.of(f"inputs.{name}", f"must be {dtype}, got {array.dtype}")
    cast = array.astype(due)
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
