"""The default options of a checkpoint without generation options."""

from typing import Any

from shaperouter.v1 import generation_pb2
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.wire.options import options_to_message

_DEFAULTS = {
    name: option.default
    for name, option in OPTIONS.items()
    if option.checkpoint and option.default is not None
}


def default_options(**changes: Any) -> generation_pb2.GenerationOptions:
    """Every option that has a default, with the changes of a checkpoint."""
    message = options_to_message(_DEFAULTS)
    message.MergeFrom(generation_pb2.GenerationOptions(**changes))
    return message
