"""The names of a generation's tensors and parameters, and their types.

They are those of Triton's backends for vLLM and TensorRT-LLM, and those of our own options.
"""

from collections.abc import Mapping

from shaperouter_service.generation.option import Kind
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.tensors.dtypes import DType

TEXT = "text_input"
STREAM = "stream"
# Options as a JSON object.
JSON_OPTIONS = "sampling_parameters"
EXCLUDE_INPUT = "exclude_input_in_output"
LOG_PROBS = "return_log_probs"
# Clients set it to get a last response without tensors. Here a parameter of the last response says
# in any case that it is the last, so this changes nothing.
EMPTY_FINAL = "triton_enable_empty_final_response"

# The option of each name. `exclude_input_in_output` takes the place of `echo`: it says whether the
# answer begins with the prompt.
OPTION_NAMES: Mapping[str, str] = {
    **{name: name for name in OPTIONS if name != "echo"},
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "stop_words": "stop",
    "beam_width": "num_beams",
    "n": "num_return_sequences",
}
KINDS: Mapping[str, Kind] = {
    STREAM: Kind.FLAG,
    EXCLUDE_INPUT: Kind.FLAG,
    LOG_PROBS: Kind.FLAG,
    EMPTY_FINAL: Kind.FLAG,
    **{name: OPTIONS[option].kind for name, option in OPTION_NAMES.items()},
}

_BYTES = (DType.BYTES,)
_INTEGERS = tuple(dtype for dtype in DType if dtype.numpy.kind in "iu")
# The data types that tensors of a kind may have, the usual one first. Options of other kinds are
# only in the JSON.
TYPES: Mapping[Kind, tuple[DType, ...]] = {
    Kind.FLAG: (DType.BOOL,),
    Kind.EARLY_STOPPING: (DType.BOOL,),
    Kind.COUNT: (DType.INT32, *_INTEGERS),
    Kind.SEED: (DType.UINT64, *_INTEGERS),
    Kind.TOKEN: (DType.INT32, *_INTEGERS),
    Kind.TOKENS: (DType.INT32, *_INTEGERS),
    Kind.NUMBER: (DType.FP32, DType.FP64, DType.FP16, DType.BF16, *_INTEGERS),
    Kind.LANGUAGE: _BYTES,
    Kind.TEXT: _BYTES,
    Kind.TEXTS: _BYTES,
    Kind.WORDS: _BYTES,
}
# Kinds whose tensors may have any number of elements; others have one.
LISTS = (Kind.TEXTS, Kind.WORDS, Kind.TOKENS)

# The tensors of an answer.
TEXT_OUTPUT = "text_output"
FINISH_REASON = "finish_reason"
INPUT_TOKENS = "num_input_tokens"
OUTPUT_TOKENS = "num_output_tokens"
LOGPROB = "cumulative_logprob"
PROMPT_LOGPROBS = "prompt_logprobs"
OUTPUTS: Mapping[str, DType] = {
    TEXT_OUTPUT: DType.BYTES,
    FINISH_REASON: DType.BYTES,
    INPUT_TOKENS: DType.UINT32,
    OUTPUT_TOKENS: DType.UINT32,
    LOGPROB: DType.FP32,
    PROMPT_LOGPROBS: DType.FP32,
}
