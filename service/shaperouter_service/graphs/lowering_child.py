"""The child process that traces programs for a worker; see `lowering_process`."""

import contextlib
import json
import os
import sys
from multiprocessing.connection import Connection
from typing import NoReturn

from shaperouter_service.graphs.lowering_process import NotTraced, Order, Traced
from shaperouter_service.models import Model, weightless_model
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
        models = {name: weightless_model(spec) for name, spec in connection.recv().items()}
        while True:
            connection.send(_trace(connection.recv(), models))
    os._exit(0)


def _trace(order: Order, models: dict[str, Model]) -> Traced | NotTraced:
    try:
        program = order.plan(models[order.model])
        lowered = program.lower()
    # Whatever TensorFlow raises, the next program may still be traced.
    except Exception as error:
        return NotTraced(error=str(error) or type(error).__name__)
    return Traced(lowered=lowered, traces=program.traces)


if __name__ == "__main__":
    main()
