"""Requests to generate over Open Inference, in all the forms that clients send them in."""

import asyncio
import json
import math
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
import pytest

from harness.open_inference import infer_request
from shaperouter_service.edge.inference.answers import answers
from shaperouter_service.edge.inference.generation_inputs import OUTPUTS
from shaperouter_service.edge.inference.generation_request import (
    Generation,
    generation_from_request,
)
from shaperouter_service.edge.inference.grpc.messages import request_from_message
from shaperouter_service.edge.inference.stubs.grpc_service_pb2 import ModelInferRequest
from shaperouter_service.errors import InvalidRequestError, Violation
from shaperouter_service.generation.events import GenerationEvent, TokenizedInput
from shaperouter_service.generation.option import EarlyStopping


def read_message(request: ModelInferRequest) -> Generation:
    return generation_from_request(request_from_message(request))


def read(**given: Any) -> Generation:
    return read_message(infer_request(text_input="A", **given))


def options(**given: Any) -> dict[str, Any]:
    return dict(read(**given).request.options)


def from_json(**given: Any) -> dict[str, Any]:
    return options(sampling_parameters=json.dumps(given))


def faults(**given: Any) -> list[str]:
    with pytest.raises(InvalidRequestError) as caught:
        read_message(infer_request(**given))
    return [f"{each.field}: {each.description}" for each in caught.value.violations]


def test_sequences_take_no_memory_before_they_begin() -> None:
    async def nothing(
        on_input: Callable[[TokenizedInput], None],
    ) -> AsyncGenerator[GenerationEvent, None]:
        on_input(
            TokenizedInput(
                tokens=1, is_source=False, token_text=str, token_bytes=lambda _: None, decode=str
            )
        )
        for event in ():
            yield event

    async def read_all() -> int:
        return len([each async for each in answers(read(n=10_000_000), nothing)])

    tracemalloc.start()
    try:
        assert asyncio.run(read_all()) == 0
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


# Where values come from.


def test_text_and_flags_may_be_parameters() -> None:
    request = infer_request(parameters={"text_input": "A", "stream": True})
    found = read_message(request)
    assert (found.request.input.text, found.streams) == ("A", True)


def test_options_come_from_tensors_parameters_and_json() -> None:
    found = options(
        max_tokens=7, parameters={"temperature": 0.5}, sampling_parameters='{"top_k": 3}'
    )
    assert found == {"max_new_tokens": 7, "temperature": 0.5, "top_k": 3}


def test_the_same_value_may_come_twice() -> None:
    # As in Triton's sample client for vLLM, which also sends numbers as texts.
    given = {"temperature": "0.1", "top_p": "0.95", "max_tokens": "100"}
    found = options(parameters=given, sampling_parameters=json.dumps(given))
    assert found == {"temperature": 0.1, "top_p": 0.95, "max_new_tokens": 100}


def test_two_values_contradict_each_other() -> None:
    (fault,) = faults(text_input="A", parameters={"top_k": 3}, sampling_parameters='{"top_k": 4}')
    assert fault == "sampling_parameters.top_k: must equal parameters.top_k, got 4 and 3"


def test_two_names_of_one_option_contradict_each_other() -> None:
    (fault,) = faults(text_input="A", max_tokens=3, max_new_tokens=4)
    assert "is the same option" in fault


def test_a_tensor_of_one_element_may_have_any_rank() -> None:
    request = infer_request(text_input="A", max_tokens=7)
    for tensor in request.inputs:
        tensor.shape[:] = [1, 1]
    assert read_message(request).request.options == {"max_new_tokens": 7}


# What values mean.


@pytest.mark.parametrize(
    ("given", "option", "value"),
    [
        ({"stop": "end"}, "stop", ("end",)),
        ({"stop_words": ["a", "b"]}, "stop", ("a", "b")),
        ({"bad_words": ["a"]}, "bad_words", ("a",)),
        ({"beam_width": 4}, "num_beams", 4),
        ({"min_tokens": 2}, "min_new_tokens", 2),
        ({"seed": "12"}, "seed", 12),
        ({"do_sample": "True"}, "do_sample", True),
        ({"max_tokens": 3.0}, "max_new_tokens", 3),
        ({"top_k": -1}, "top_k", 0),
        ({"logit_bias": {"5": -1.5}}, "logit_bias", ((5, -1.5),)),
        ({"eos_token_ids": []}, "eos_token_ids", ()),
        ({"bad_words_token_ids": [[1, 2]]}, "bad_words_token_ids", ((1, 2),)),
    ],
)
def test_values_of_json_become_options(given: dict[str, Any], option: str, value: Any) -> None:
    assert from_json(**given) == {option: value}


def test_early_stopping_has_the_values_of_transformers() -> None:
    assert from_json(num_beams=2, early_stopping="never") == {
        "num_beams": 2,
        "early_stopping": EarlyStopping.NEVER,
    }


@pytest.mark.parametrize("value", [[], {}, 3, "sometimes"])
def test_early_stopping_has_no_other_values(value: Any) -> None:
    (fault,) = faults(
        text_input="A", sampling_parameters=json.dumps({"early_stopping": value, "num_beams": 2})
    )
    told = f'early_stopping: must be true, false or "never", got {value!r}'
    assert fault == f"sampling_parameters.{told}"


@pytest.mark.parametrize(
    "given",
    [
        {"sampling_parameters": '{"temperature": "nan"}'},
        {"parameters": {"temperature": float("nan")}},
        {"temperature": float("nan")},
    ],
)
def test_a_number_that_is_none_is_left_to_the_core_to_refuse(given: dict[str, Any]) -> None:
    assert math.isnan(options(**given)["temperature"])


def test_json_is_read_strictly() -> None:
    (fault,) = faults(text_input="A", sampling_parameters='{"temperature": NaN}')
    assert fault == "sampling_parameters: must be JSON: numbers must be finite, got NaN"


def test_null_in_json_gives_no_option() -> None:
    assert from_json(seed=None) == {}


@pytest.mark.parametrize("read_options", [options, from_json])
def test_empty_words_are_none(read_options: Callable[..., dict[str, Any]]) -> None:
    # TensorRT-LLM's clients send them in place of no words.
    found = read_options(stop_words=["", "end"], bad_words=[""])
    assert found == {"stop": ("end",), "bad_words": ()}


def test_an_empty_word_in_place_of_a_list_is_none() -> None:
    words = {"stop_words": "", "bad_words": ""}
    assert options(parameters=words) == from_json(**words) == {"stop": (), "bad_words": ()}


def test_an_empty_choice_is_left_to_the_core_to_refuse() -> None:
    assert options(choices=["yes", ""]) == from_json(choices=["yes", ""])
    assert from_json(choices=["yes", ""]) == {"choices": ("yes", "")}


def test_no_temperature_is_greedy_whatever_else_is_sampled_by() -> None:
    assert from_json(temperature=0, top_p=0.9, max_tokens=3) == {
        "do_sample": False,
        "max_new_tokens": 3,
    }


def test_neutral_options_of_beam_search_are_no_options_without_it() -> None:
    # Clients of TensorRT-LLM send all options.
    assert options(length_penalty=1.0, beam_width=1) == {"num_beams": 1}
    assert options(length_penalty=2.0, beam_width=1) == {"num_beams": 1, "length_penalty": 2.0}


@pytest.mark.parametrize(
    ("given", "excludes_input"),
    [
        ({}, False),
        ({"stream": True}, True),
        ({"exclude_input_in_output": True}, True),
        ({"exclude_input_in_output": False, "stream": True}, False),
    ],
)
def test_the_prompt_comes_first_in_one_answer_and_not_in_a_stream(
    given: dict[str, Any], excludes_input: bool
) -> None:
    assert read(**given).excludes_input is excludes_input


def test_the_log_probability_is_computed_where_it_is_asked_for() -> None:
    assert "logprobs" not in read().request.options
    assert read().outputs == OUTPUTS.keys() - {"cumulative_logprob", "prompt_logprobs"}
    for found in (read(return_log_probs=True), read(outputs=("cumulative_logprob",))):
        assert found.request.options["logprobs"] == 0
        assert "cumulative_logprob" in found.outputs


def test_the_prompt_is_scored_where_it_is_asked_for() -> None:
    assert "prompt_logprobs" not in read().request.options
    for found in (read(prompt_logprobs=0), read(outputs=("prompt_logprobs",))):
        assert found.request.options["prompt_logprobs"] == 0
        assert "prompt_logprobs" in found.outputs
    (fault,) = faults(text_input="A", prompt_logprobs=2)
    assert fault.startswith("prompt_logprobs: must be 0")
    assert fault.endswith("got 2")


def test_errors_of_the_core_get_the_callers_names() -> None:
    error = InvalidRequestError(
        Violation(field="options.max_new_tokens", description="must be less"),
        Violation(field="options.stop[1]", description="must be longer"),
        Violation(field="text_input", description="must not be empty"),
    )
    found = read(max_tokens=3, stop_words=["a", "b"]).in_callers_words(error)
    assert [each.field for each in found.violations] == [
        "max_tokens",
        "stop_words[1]",
        "text_input",
    ]


# Bad input.


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({}, "text_input: is required"),
        ({"text_input": ["A", "B"]}, "inputs.text_input: must have 1 element, got 2"),
        ({"text_input": 3}, "inputs.text_input: must be BYTES, got INT32"),
        ({"text_input": b"\xff"}, "inputs.text_input: must be UTF-8, got byte 0xff"),
        ({"text_input": "A", "prompt": "A"}, "inputs.prompt: is unknown; ModelMetadata"),
        ({"text_input": "A", "pad_id": 3}, "inputs.pad_id: is unknown; ModelMetadata"),
        ({"text_input": "A", "stream": 1}, "inputs.stream: must be BOOL, got INT32"),
        ({"text_input": "A", "max_tokens": 1.5}, "inputs.max_tokens: must be INT32, UINT8"),
        ({"text_input": "A", "logit_bias": "{}"}, "inputs.logit_bias: must be in the JSON"),
        ({"text_input": "A", "outputs": ("logits",)}, "outputs[0]: must be one of text_output"),
        ({"text_input": "A", "parameters": {"priority": 1}}, "parameters.priority: is unknown"),
        ({"text_input": "A", "parameters": {"top_k": "x"}}, "must be an integer, got 'x'"),
        ({"text_input": "A", "parameters": {"stream": "maybe"}}, "must be true or false, got"),
        ({"parameters": {"text_input": 3}}, "parameters.text_input: must be a text, got 3"),
        ({"text_input": "A", "sampling_parameters": "{"}, "sampling_parameters: must be JSON"),
        ({"text_input": "A", "sampling_parameters": "[" * 100_000}, "must be JSON"),
        ({"text_input": "A", "sampling_parameters": "[]"}, "must be a JSON object, got []"),
        ({"text_input": "A", "sampling_parameters": '{"best_of": 2}'}, "best_of: is unknown"),
        ({"text_input": "A", "sampling_parameters": '{"n": true}'}, "must be an integer, got True"),
        ({"text_input": "A", "sampling_parameters": '{"stop": [1]}'}, "a text or a list of texts"),
        ({"text_input": "A", "sampling_parameters": '{"temperature": "warm"}'}, "a number, got"),
        ({"text_input": "A", "sampling_parameters": '{"logit_bias": {"a": 1}}'}, "by token id"),
    ],
    ids=str,
)
def test_bad_input_is_refused_with_name_and_value(given: dict[str, Any], fault: str) -> None:
    (found,) = faults(**given)
    assert fault in found


def test_all_faults_are_told_at_once() -> None:
    assert len(faults(text_input="A", stream=1, prompt="A", sampling_parameters="{")) == 3


def test_an_output_has_no_parameters() -> None:
    request = infer_request(text_input="A", outputs=("text_output",))
    request.outputs[0].parameters["classification"].int64_param = 3
    with pytest.raises(InvalidRequestError, match="must have no parameters, got 'classification'"):
        read_message(request)


def test_half_precision_numbers_are_numbers() -> None:
    request = infer_request()
    for name, array in (("text_input", b"\1\0\0\0A"), ("top_p", np.float16(0.5).tobytes())):
        datatype = "BYTES" if name == "text_input" else "FP16"
        request.inputs.add(name=name, datatype=datatype, shape=[1])
        request.raw_input_contents.append(array)
    assert read_message(request).request.options == {"top_p": 0.5}
