"""A checkpoint's generation options become its requests' defaults, or are logged as unsupported."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.logs import capture_logs
from shaperouter_service.checkpoints.model_locations import parse_models
from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.errors import StartupError
from shaperouter_service.generation.option import EarlyStopping, Needs
from shaperouter_service.generation.option_table import OPTIONS
from shaperouter_service.models.config import Config
from shaperouter_service.models.defaults import read_default_lengths, read_default_options
from shaperouter_service.models.family import Family
from shaperouter_service.models.gpt2 import GPT2
from shaperouter_service.models.loading import read_family
from shaperouter_service.models.t5 import T5

VOCAB_SIZE = 100
EOS = 99
# The defaults of a checkpoint that states none.
DEFAULTS = {
    name: () if option.default is None else option.default
    for name, option in OPTIONS.items()
    if option.checkpoint and option.needs is not Needs.ENCODER
}


def read(
    values: dict[str, Any] | None,
    *,
    config: dict[str, Any] | None = None,
    vocab_size: int = VOCAB_SIZE,
    family: type[Family] = GPT2,
) -> dict[str, Any]:
    """Reads a generation_config.json with these values; None means a checkpoint without one."""
    return read_default_options(*made(values, config or {}, family, vocab_size=vocab_size))


def read_lengths(values: dict[str, Any], family: type[Family] = T5) -> tuple[int, int]:
    """Reads the lengths of whole sequences from a generation_config.json with these values."""
    return read_default_lengths(*made(values, {}, family))


def made(
    values: dict[str, Any] | None,
    config: dict[str, Any],
    family: type[Family],
    *,
    vocab_size: int = VOCAB_SIZE,
) -> tuple[Any, Family]:
    """A checkpoint with these files, and its family."""
    config = {"vocab_size": vocab_size, "n_positions": 64} | config
    checkpoint = SimpleNamespace(directory=Path("m"), config=config, generation_config=values)
    return checkpoint, family.from_config(Config(Path("m/config.json"), config))


def test_a_checkpoint_without_options() -> None:
    options = read({})
    assert options == DEFAULTS


def test_null_counts_as_left_out() -> None:
    names = [*(option.checkpoint for option in OPTIONS.values()), "guidance_scale"]
    assert read(dict.fromkeys(names)) == DEFAULTS


@pytest.mark.parametrize(
    "unusable",
    [
        {"temperature": 0.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"typical_p": 0},
        {"epsilon_cutoff": 1.0},
    ],
)
@pytest.mark.parametrize("values", [{}, {"do_sample": False}, {"do_sample": None}])
def test_unusable_values_of_sampling_are_not_read_without_it(
    values: dict[str, Any], unusable: dict[str, Any]
) -> None:
    assert read(values | unusable) == DEFAULTS


def test_usable_values_of_sampling_are_defaults_of_requests_that_sample() -> None:
    values = {"do_sample": False, "temperature": 0.5, "top_k": 7, "top_p": 0.9}
    assert read(values) == DEFAULTS | values


def test_a_top_p_of_zero_leaves_one_token() -> None:
    # The warpers' tests show that this value does.
    assert read({"do_sample": True, "top_p": 0.0})["top_p"] == 1e-9


def test_every_option_is_read() -> None:
    values = {
        "max_new_tokens": 40,
        "do_sample": True,
        "temperature": 0.5,
        "top_k": 7,
        "top_p": 0.9,
        "min_p": 0.05,
        "typical_p": 0.8,
        "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3,
        "epsilon_cutoff": 0.01,
        "eta_cutoff": 0.02,
        "forced_bos_token_id": 6,
        "forced_eos_token_id": 7,
        "min_new_tokens": 2,
        "num_beams": 4,
        "num_return_sequences": 2,
        "length_penalty": -0.5,
        "renormalize_logits": True,
    }
    options = read(
        values
        | {
            "early_stopping": True,
            "eos_token_id": EOS,
            "sequence_bias": [[[5], -1.5]],
            "bad_words_ids": [[1, 2], [3]],
            "suppress_tokens": [9, EOS, VOCAB_SIZE, 9],
        }
    )
    assert options == DEFAULTS | values | {
        "early_stopping": EarlyStopping.FIRST,
        "eos_token_ids": (EOS,),
        "logit_bias": ((5, -1.5),),
        "bad_words_token_ids": ((1, 2), (3,)),
        # What the vocabulary lacks can never be generated.
        "suppress_tokens": (9, EOS),
    }


def test_options_about_the_source_are_read_where_an_encoder_reads_tokens() -> None:
    values = {"encoder_repetition_penalty": 1.5, "encoder_no_repeat_ngram_size": 3}
    options = read(values, family=T5)
    assert options == DEFAULTS | values


def test_a_forced_token_may_be_the_only_one_of_a_list() -> None:
    assert read({"forced_eos_token_id": [7]})["forced_eos_token_id"] == 7


def test_integers_are_accepted_for_floats() -> None:
    assert read({"temperature": 2})["temperature"] == 2.0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (False, EarlyStopping.HEURISTIC),
        (True, EarlyStopping.FIRST),
        ("never", EarlyStopping.NEVER),
    ],
)
def test_early_stopping(value: object, expected: int) -> None:
    assert read({"early_stopping": value})["early_stopping"] == expected


def test_without_a_generation_config_options_come_from_the_config() -> None:
    options = read(None, config={"temperature": 0.7, "do_sample": True, "eos_token_id": 3})
    assert (options["temperature"], options["do_sample"]) == (0.7, True)
    assert options["eos_token_ids"] == (3,)


def test_a_flag_of_old_configs_forces_the_first_token() -> None:
    config = {"force_bos_token_to_be_generated": True, "bos_token_id": 4}
    assert read(None, config=config)["forced_bos_token_id"] == 4


def test_the_flag_that_forces_the_first_token_needs_that_token() -> None:
    with pytest.raises(StartupError, match=r"bos_token_id must be given .* got None"):
        read(None, config={"force_bos_token_to_be_generated": True})


def test_with_a_generation_config_options_of_the_config_are_ignored() -> None:
    options = read({}, config={"temperature": 0.7, "eos_token_id": 3})
    assert options == DEFAULTS


def test_options_of_tasks_are_ignored() -> None:
    tasks = {"text-generation": {"do_sample": True, "max_length": 50}}
    with capture_logs() as logs:
        assert not read(None, config={"task_specific_params": tasks})["do_sample"]
    assert logs == []


def test_top_k_is_at_most_the_vocabulary() -> None:
    assert read({}, vocab_size=30)["top_k"] == 30
    assert read({"top_k": 101, "do_sample": True})["top_k"] == VOCAB_SIZE


def test_end_tokens_that_the_vocabulary_lacks_are_left_out() -> None:
    assert read({"eos_token_id": [EOS, VOCAB_SIZE, 3, EOS]})["eos_token_ids"] == (EOS, 3)


@pytest.mark.parametrize(("value", "ends"), [(-1, ()), ([-1], ()), ([-1, 3], (3,))])
def test_an_end_token_of_minus_one_means_none(value: object, ends: tuple[int, ...]) -> None:
    assert read({"eos_token_id": value})["eos_token_ids"] == ends
    # Not the architecture's own either.
    assert read(None, config={"eos_token_id": value})["eos_token_ids"] == ends


def test_biases_beyond_any_logit_are_as_large_as_biases_can_be() -> None:
    options = read({"sequence_bias": [[[5], 2e4], [[6], float("-inf")], [[7], 10**400]]})
    assert options["logit_bias"] == ((5, 1e4), (6, -1e4), (7, 1e4))


def test_the_last_bias_of_a_token_counts() -> None:
    options = read({"sequence_bias": [[[5], 1.0], [[5], 2.0]]})
    assert options["logit_bias"] == ((5, 2.0),)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"guidance_scale": 1.5}, ["guidance_scale"]),
        ({"max_length": 50, "min_length": 5}, ["max_length", "min_length"]),
        (
            {"num_beam_groups": 2, "diversity_penalty": 0.3},
            ["diversity_penalty", "num_beam_groups"],
        ),
        ({"forced_eos_token_id": [1, 2]}, ["forced_eos_token_id of several tokens"]),
        (
            {"encoder_repetition_penalty": 1.5, "encoder_no_repeat_ngram_size": 2},
            ["encoder_repetition_penalty", "encoder_no_repeat_ngram_size"],
        ),
        ({"sequence_bias": [[[1, 2], 1.0]]}, ["sequence_bias of several tokens"]),
    ],
)
def test_one_warning_names_all_unsupported_options(
    values: dict[str, Any], named: list[str]
) -> None:
    with capture_logs() as logs:
        read(values)
    (warning,) = logs
    assert warning["log_level"] == "warning"
    assert warning["file"] == "m/generation_config.json"
    assert warning["options"] == named


def test_neutral_values_of_unsupported_options_cause_no_warning() -> None:
    neutral = {
        "max_length": 20,
        "min_length": 0,
        "guidance_scale": 1.0,
        "num_beam_groups": 1,
        "diversity_penalty": 0.0,
        "renormalize_logits": False,
        "begin_suppress_tokens": [],
        "forced_bos_token_id": None,
        "use_cache": True,
        "pad_token_id": 0,
        "transformers_version": "5.23.0",
    }
    with capture_logs() as logs:
        assert read(neutral) == DEFAULTS
    assert logs == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be from 1 to 2147483647, got 0"),
        ({"do_sample": 1}, "do_sample must be of type bool, got 1"),
        ({"do_sample": True, "temperature": 0}, "temperature must be from 1e-06 to 1000000, got 0"),
        ({"temperature": "hot"}, "temperature must be of type float, got 'hot'"),
        ({"do_sample": True, "temperature": float("nan")}, "temperature must be .* got nan"),
        ({"do_sample": True, "top_k": -1}, "top_k must be from 0 to 2147483647, got -1"),
        ({"do_sample": True, "top_p": 1.1}, "top_p must be above 0, up to 1, got 1.1"),
        ({"do_sample": True, "top_p": -0.1}, "top_p must be above 0, up to 1, got -0.1"),
        ({"do_sample": True, "min_p": -0.1}, "min_p must be from 0 to 1, got -0.1"),
        ({"do_sample": True, "typical_p": 0.0}, "typical_p must be above 0, up to 1, got 0.0"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be from 0.001 to 1000, got 0.0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size must be from 0 to"),
        ({"min_new_tokens": 65}, "min_new_tokens must be from 0 to 64, got 65"),
        (
            {"min_new_tokens": 9, "max_new_tokens": 8},
            "max_new_tokens must be from 9 to 2147483647, got 8",
        ),
        ({"num_beams": 0}, "num_beams must be from 1 to"),
        ({"num_return_sequences": 2}, "num_return_sequences must be from 1 to 1, got 2"),
        (
            {"num_return_sequences": 17, "do_sample": True},
            "num_return_sequences must be from 1 to 16, got 17",
        ),
        (
            {"num_return_sequences": 5, "num_beams": 4, "do_sample": True},
            "num_return_sequences must be from 1 to 4, got 5",
        ),
        ({"length_penalty": 11}, "length_penalty must be from -10 to 10, got 11"),
        ({"early_stopping": "soon"}, "early_stopping must be true, false or \"never\", got 'soon'"),
        ({"early_stopping": 1}, 'early_stopping must be true, false or "never", got 1'),
        ({"eos_token_id": "</s>"}, "eos_token_id must have ids from 0 to .* got '</s>'"),
        ({"eos_token_id": list(range(9))}, "eos_token_id must have at most 8 ids, got 9"),
        ({"sequence_bias": {"5": 1.0}}, "sequence_bias must be a list, got"),
        ({"sequence_bias": [[5, 1.0]]}, "sequence_bias must have lists of 1 to 8 ids, got 5"),
        ({"sequence_bias": [[[5], "2"]]}, "sequence_bias must have numbers as biases, got '2'"),
        ({"sequence_bias": [[[5], float("nan")]]}, "sequence_bias must have numbers .* got nan"),
        ({"sequence_bias": [[[5]]]}, "sequence_bias must have pairs of ids and a bias"),
        ({"bad_words_ids": [[]]}, r"bad_words_ids must have lists of 1 to 8 ids, got \[\]"),
        ({"bad_words_ids": [[1] * 9]}, "bad_words_ids must have lists of 1 to 8 ids, got"),
        ({"bad_words_ids": [[100]]}, "bad_words_ids must have ids from 0 to 99, got 100"),
        (
            {"do_sample": True, "epsilon_cutoff": 1.0},
            "epsilon_cutoff must be from 0 to below 1, got 1.0",
        ),
        ({"forced_bos_token_id": -1}, "forced_bos_token_id must have ids from 0 to 99, got -1"),
        (
            {"forced_eos_token_id": 5, "suppress_tokens": [4, 5]},
            "suppress_tokens must not have forced_eos_token_id, got 5",
        ),
        ({"suppress_tokens": [-1]}, "suppress_tokens must have ids from 0 to .* got -1"),
    ],
)
def test_values_over_a_limit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(StartupError, match=rf"m/generation_config\.json: {message}"):
        read(values)


def test_too_many_biases_and_bans() -> None:
    values = {
        "sequence_bias": [[[0], 1.0]],
        "bad_words_ids": [[a, b] for a in range(16) for b in range(16)],
    }
    with pytest.raises(StartupError, match="must have at most 256 entries in total, got 257"):
        read(values)


@pytest.mark.parametrize("name", ["demo", "g2p"])
def test_all_options_of_built_in_models_are_supported(name: str) -> None:
    (source,) = parse_models([name])
    checkpoint = Checkpoint(source.directory)
    with capture_logs() as lines:
        read_default_options(checkpoint, read_family(checkpoint))
    assert lines == []


def test_limits_of_whole_sequences_become_limits_of_new_tokens_for_an_encoder_decoder() -> None:
    # As in checkpoints that summarize; the first token of a sequence starts it.
    with capture_logs() as logs:
        options = read({"max_length": 42, "min_length": 13}, family=T5)
    assert (options["max_new_tokens"], options["min_new_tokens"]) == (41, 12)
    assert not logs


def test_limits_of_whole_sequences_are_known_where_they_count() -> None:
    lengths = {"max_length": 42, "min_length": 13}
    assert read_lengths({}) == (0, 0)
    assert read_lengths(lengths) == (42, 13)
    assert read_lengths(lengths | {"max_new_tokens": 20}) == (0, 13)
    assert read_lengths(lengths | {"min_new_tokens": 2}) == (42, 0)
    # Without an encoder, the prompt may be longer than all of it.
    assert read_lengths(lengths, family=GPT2) == (0, 0)


def test_limits_of_new_tokens_come_before_those_of_whole_sequences() -> None:
    values = {"max_length": 42, "min_length": 13, "max_new_tokens": 9, "min_new_tokens": 2}
    options = read(values, family=T5)
    assert (options["max_new_tokens"], options["min_new_tokens"]) == (9, 2)
