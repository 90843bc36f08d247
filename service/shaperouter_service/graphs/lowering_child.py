"""The child process that traces programs for a worker; see `lowering_process`."""

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from shaperouter_service.graphs.lowering_process import (
    LoweringFailure,
    LoweringRequest,
    LoweringResult,
)
from shaperouter_service.system.process import exit_with_parent
from shaperouter_service.telemetry.logs import LogSettings, configure_logs


def main() -> NoReturn:
    """Traces programs until this process is killed or the worker ends."""
    exit_with_parent()
    configure_logs(LogSettings(**json.loads(sys.argv[2])))
    connection = Connection(int(sys.argv[1]))
    # A closed connection means that the worker has ended, perhaps while this process was starting.
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send(None)
        recipes = connection.recv()
        # Made when the first program of a model is traced, and kept.
        model = functools.cache(lambda name: recipes[name]())
        while True:
            connection.send(_trace(connection.recv(), model))
    os._exit(0)


def _trace(
    request: LoweringRequest, model: Callable[[str], Any]
) -> LoweringResult | LoweringFailure:
    try:
        program = request.plan(model(request.model))
        lowered = program.lower()
    # Whatever TensorFlow raises, the next program may still be traced.
    except Exception as error:
        return LoweringFailure(error=str(error) or type(error).__name__)
    return LoweringResult(lowered=lowered, traces=program.traces)


if __name__ == "__main__":
    main()
