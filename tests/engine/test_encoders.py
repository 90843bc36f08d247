"""Text encoders answer as the reference does, whatever the batch, with and without the kernels."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from harness.encoders import ENCODERS, GOLDENS, EncoderGolden, answers, batch, call
from harness.state_dicts import write_state_dict
from shaperouter_service.checkpoints.conversion import convert_directory
from shaperouter_service.errors import StartupError
from shaperouter_service.models.encoders import is_encoder, load_encoder
from shaperouter_service.models.encoders.heads import as_scores
from shaperouter_service.routing.served_model import ModelKind
from shaperouter_service.worker.snapshot import describe_call_model

# Of a number in an answer. Logits and scores are about 1.
TOLERANCE = 5e-6


pytestmark = pytest.mark.usefixtures("native_kernels")


@pytest.fixture(params=ENCODERS)
def golden(request: pytest.FixtureRequest) -> EncoderGolden:
    return EncoderGolden.read(request.param)


def cosine(some: np.ndarray, others: np.ndarray) -> float:
    return float((some * others).sum() / np.linalg.norm(some) / np.linalg.norm(others))


@pytest.mark.parametrize("packed", [False, True], ids=["XLA", "kernels"])
def test_answers_equal_the_reference_in_a_padded_batch(golden: EncoderGolden, packed: bool) -> None:
    model = load_encoder(golden.name, golden.directory, "float32", packed=packed)
    longest = max(len(case["input_ids"]) for case in golden.cases)
    assert longest == model.max_length
    # One row more than there are texts, and positions that no text uses.
    texts = list(reversed(golden.cases))
    found = answers(model, texts, rows=len(texts) + 1, length=longest)
    for answer, case in zip(found, texts, strict=True):
        expected = np.asarray(case["expected"])
        np.testing.assert_allclose(answer, expected, atol=TOLERANCE, rtol=TOLERANCE)
        assert golden.output != "embedding" or cosine(answer, expected) > 0.999999


@pytest.mark.parametrize("packed", [False, True], ids=["XLA", "kernels"])
@pytest.mark.parametrize("name", ["bert-embedder", "mpnet-embedder", "roberta-labels"])
def test_neither_padding_nor_other_texts_change_an_answer(name: str, packed: bool) -> None:
    golden = EncoderGolden.read(name)
    model = load_encoder(golden.name, golden.directory, "float32", packed=packed)
    _, _, text, other, _ = golden.cases
    (alone,) = answers(model, [text], rows=1, length=len(text["input_ids"]))
    for pad in (0, 77):
        _, beside = answers(model, [other, text], rows=3, length=40, pad=pad)
        np.testing.assert_allclose(beside, alone, atol=TOLERANCE)
        if packed and name == "mpnet-embedder":
            # Equal to the last bit if no dense module follows: the kernels add up in one order.
            np.testing.assert_array_equal(beside, alone)


def test_int8_and_bfloat16_are_close_to_the_reference(golden: EncoderGolden) -> None:
    texts = golden.cases[2:]
    length = max(len(text["input_ids"]) for text in texts)
    for dtype, packed in (("int8", True), ("bfloat16", True), ("bfloat16", False)):
        model = load_encoder(golden.name, golden.directory, dtype, packed=packed)  # type: ignore[arg-type]
        found = answers(model, texts, rows=3, length=length)
        expected = [np.asarray(text["expected"]) for text in texts]
        # Over all texts: a single score has no direction.
        assert cosine(np.concatenate(found, axis=None), np.concatenate(expected, axis=None)) > 0.99


def test_each_number_of_parameters_is_that_of_the_checkpoint(golden: EncoderGolden) -> None:
    model = load_encoder(golden.name, golden.directory, "float32", packed=True)
    tensors: dict[str, np.ndarray] = {}
    for path in golden.directory.rglob("*.safetensors"):
        tensors |= {f"{path.parent.name}.{name}": each for name, each in load_file(path).items()}
    unread = ("lm_head.", "pooler.")
    ignored = () if golden.name == "bert-reranker" else unread
    assert model.parameters == sum(
        each.size for name, each in tensors.items() if not any(part in name for part in ignored)
    )


def test_layers_are_looped_with_the_kernels() -> None:
    golden = EncoderGolden.read("bert-embedder")
    model = load_encoder("m", golden.directory, "float32", packed=True)
    assert model.weights.packed["layers.qkv.weight"] == (36, 108)
    assert model.weights["layers.attention_norm.weight"].shape == (2, 36)


def test_ladders_end_at_the_longest_text() -> None:
    for packed in (False, True):
        model = load_encoder("m", GOLDENS / "roberta-labels", "float32", packed=packed)
        (lengths,) = model.ladders.axes
        assert lengths.ladder is not None
        assert lengths.ladder.maximum == 39
        assert model.ladders.rows is not None
        assert model.kind is ModelKind.CLASSIFIER
        assert model.labels == tuple(f"LABEL_{index}" for index in range(6))


def test_specs_name_tensors_and_axes() -> None:
    found = {}
    for name in ("bert-embedder", "roberta-labels", "xlm-roberta-tagger"):
        model = load_encoder(name, GOLDENS / name, "float32")
        inputs = [each.name for each in model.spec.inputs]
        (output,) = model.spec.outputs
        found[name] = (inputs, output.name, output.shape, dict(model.spec.axes[0].outputs))
    both = ["input_ids", "attention_mask"]
    assert found == {
        "bert-embedder": ([*both, "token_type_ids"], "embedding", (None, 20), {}),
        "roberta-labels": (both, "scores", (None, 6), {}),
        "xlm-roberta-tagger": (both, "scores", (None, None, 3), {"scores": 1}),
    }


def test_workers_tell_the_number_of_types() -> None:
    found = {}
    for name in ("bert-tagger", "distilbert-embedder"):
        model = load_encoder(name, GOLDENS / name, "float32")
        found[name] = describe_call_model(model, model.ladders, kernels="").token_types
    assert found == {"bert-tagger": 3, "distilbert-embedder": 0}


@pytest.mark.parametrize("packed", [False, True], ids=["XLA", "kernels"])
def test_scores_of_positions_without_a_token_are_zero(packed: bool) -> None:
    golden = EncoderGolden.read("bert-tagger")
    model = load_encoder(golden.name, golden.directory, "float32", packed=packed)
    whole = batch(model, golden.cases[2:3], rows=2, length=12)
    scores = call(model, whole)["scores"].numpy()
    np.testing.assert_allclose(scores.sum(axis=-1)[0], [1] * 9 + [0] * 3, rtol=1e-6)
    assert not scores[1].any()


@pytest.mark.parametrize("name", ["distilbert-classifier", "bert-reranker", "bert-embedder"])
def test_a_text_without_tokens_gets_nothing_of_another_one(name: str) -> None:
    golden = EncoderGolden.read(name)
    model = load_encoder(name, golden.directory, "float32", packed=True)
    found = []
    for case in golden.cases[:2]:
        both = batch(model, [case], rows=2, length=16)
        # The one without tokens comes first.
        flipped = {each: tf.reverse(array, [0]) for each, array in both.items()}
        found.append(call(model, flipped)[golden.output].numpy())
    first, second = found
    np.testing.assert_array_equal(first[0], second[0])
    assert (first[1] != second[1]).any()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return tmp_path / "model"


def changed(directory: Path, name: str, file: str = "config.json", **values: Any) -> Path:
    """A copy of a golden checkpoint with other values in a file; None removes one."""
    shutil.copytree(GOLDENS / name, directory, dirs_exist_ok=True)
    path = directory / file
    content = (json.loads(path.read_text()) if path.exists() else {}) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return directory


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("bert-embedder", "is_decoder", True),
        ("bert-embedder", "add_cross_attention", True),
        ("bert-embedder", "position_embedding_type", "relative_key"),
        ("bert-embedder", "pruned_heads", {"0": [1]}),
        ("bert-embedder", "hidden_act", "gelu_10"),
        ("bert-embedder", "num_attention_heads", 5),
        ("bert-embedder", "architectures", ["BertForQuestionAnswering"]),
        ("bert-reranker", "sbert_ce_default_activation_function", "mine.Own"),
        ("bert-reranker", "problem_type", "other"),
        ("bert-tagger", "id2label", {"0": "A", "2": "B"}),
        ("bert-tagger", "num_labels", 10**12),
        ("roberta-labels", "pad_token_id", 43),
        ("distilbert-classifier", "activation", "sine"),
        ("mpnet-classifier", "relative_attention_num_buckets", 31),
        ("mpnet-classifier", "quantization_config", {"bits": 4}),
    ],
)
def test_values_that_are_not_supported_are_refused_by_name(
    copied: Path, name: str, field: str, value: Any
) -> None:
    others = {"problem_type": "sbert_ce_default_activation_function", "num_labels": "id2label"}
    removed = {others[field]: None} if field in others else {}
    changed(copied, name, **{field: value}, **removed)
    named = "activation_fn" if "activation_function" in field else field
    named = "hidden_size" if field == "num_attention_heads" else named
    with pytest.raises(StartupError, match=named):
        load_encoder("m", copied, "float32")


def test_a_family_that_is_no_name_is_no_encoder() -> None:
    assert not is_encoder({"model_type": ["bert"]})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # As in Transformers: by what is said, or by the number of labels.
        ({}, "sigmoid"),
        ({"problem_type": "regression"}, "identity"),
        ({"problem_type": "multi_label_classification"}, "sigmoid"),
        ({"problem_type": "single_label_classification"}, "sigmoid"),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            "identity",
        ),
        ({"sentence_transformers": {"version": "5.0"}}, "sigmoid"),
    ],
)
def test_the_activation_of_scores_is_that_of_the_files(
    copied: Path, values: dict[str, Any], expected: str
) -> None:
    changed(copied, "bert-reranker", sbert_ce_default_activation_function=None, **values)
    golden = EncoderGolden.read("bert-reranker")
    model = load_encoder("m", copied, "float32")
    (found,) = answers(model, golden.cases[2:3], rows=1, length=9)
    logits = tf.constant(golden.cases[2]["expected"])
    np.testing.assert_allclose(found, as_scores(logits, expected), atol=TOLERANCE)


def test_the_library_says_the_activation_first(copied: Path) -> None:
    file = "config_sentence_transformers.json"
    changed(copied, "bert-reranker", file, activation_fn="torch.nn.modules.activation.Sigmoid")
    golden = EncoderGolden.read("bert-reranker")
    (found,) = answers(load_encoder("m", copied, "float32"), golden.cases[2:3], rows=1, length=9)
    logits = tf.constant(golden.cases[2]["expected"])
    np.testing.assert_allclose(found, tf.math.sigmoid(logits), atol=TOLERANCE)


def test_a_plain_checkpoint_embeds_by_the_mean_of_its_tokens(copied: Path) -> None:
    golden = EncoderGolden.read("mpnet-embedder")
    shutil.copytree(golden.directory, copied)
    (copied / "modules.json").unlink()
    (found,) = answers(load_encoder("m", copied, "float32"), golden.cases[3:4], rows=1, length=23)
    normalized = found / np.linalg.norm(found)
    np.testing.assert_allclose(normalized, golden.cases[3]["expected"], atol=TOLERANCE)


def test_pooling_is_read_as_old_versions_wrote_it(copied: Path) -> None:
    golden = EncoderGolden.read("xlm-roberta-embedder")
    changed(
        copied,
        golden.name,
        "1_Pooling/config.json",
        pooling_mode=None,
        embedding_dimension=None,
        word_embedding_dimension=36,
        pooling_mode_cls_token=True,
        pooling_mode_mean_tokens=False,
    )
    (found,) = answers(load_encoder("m", copied, "float32"), golden.cases[3:4], rows=1, length=23)
    np.testing.assert_allclose(found, golden.cases[3]["expected"], atol=TOLERANCE)


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [
        ("1_Pooling/config.json", "pooling_mode", "median"),
        ("1_Pooling/config.json", "pooling_mode", [["mean"]]),
        ("config_sentence_transformers.json", "default_prompt_name", ["query"]),
        ("2_Dense/config.json", "activation_function", "mine.Own"),
        ("2_Dense/config.json", "activation_function", "mine.Tanh"),
        ("2_Dense/config.json", "use_residual", True),
        ("2_Dense/config.json", "in_features", 35),
        ("3_Normalize/config.json", "module_input_name", "token_embeddings"),
        ("sentence_bert_config.json", "transformer_task", "fill-mask"),
        ("sentence_bert_config.json", "max_seq_length", 0),
        ("sentence_bert_config.json", "do_lower_case", "yes"),
    ],
)
def test_modules_that_are_not_supported_are_refused_by_name(
    copied: Path, file: str, field: str, value: Any
) -> None:
    changed(copied, "bert-embedder", file, **{field: value})
    with pytest.raises(StartupError, match=field):
        load_encoder("m", copied, "float32")


def test_the_default_prompt_is_that_of_the_files(copied: Path) -> None:
    prompts = {"query": "query: ", "document": ""}
    expected = {None: "", "query": "query: ", "document": ""}
    found = {}
    for name in expected:
        file = "config_sentence_transformers.json"
        changed(copied, "bert-embedder", file, prompts=prompts, default_prompt_name=name)
        found[name] = load_encoder("m", copied, "float32").text_prompt
    assert found == expected


def test_a_prompt_that_is_no_unicode_text_is_refused(copied: Path) -> None:
    file, prompts = "config_sentence_transformers.json", {"query": "\ud800"}
    changed(copied, "bert-embedder", file, prompts=prompts, default_prompt_name="query")
    with pytest.raises(StartupError, match="prompts must be Unicode texts"):
        load_encoder("m", copied, "float32")


def test_a_prompt_that_is_not_pooled_is_refused(copied: Path) -> None:
    changed(copied, "bert-embedder", "1_Pooling/config.json", include_prompt=False)
    file, prompts = "config_sentence_transformers.json", {"query": "query: "}
    (copied / file).write_text(json.dumps({"prompts": prompts, "default_prompt_name": "query"}))
    with pytest.raises(StartupError, match="include_prompt must be true"):
        load_encoder("m", copied, "float32")


def test_texts_become_lowercase_as_the_files_say(copied: Path) -> None:
    found = []
    for value in (None, False, True):
        changed(copied, "bert-embedder", "sentence_bert_config.json", do_lower_case=value)
        found.append(load_encoder("m", copied, "float32").lowercases_text)
    assert found == [False, False, True]


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ([], "must be a list of modules"),
        ([{"type": "a.CLIPModel", "path": ""}], "got CLIPModel"),
        ([{"type": "a.Transformer", "path": "0_BERT"}], "0_BERT"),
        ([{"type": "a.Transformer"}, {"type": "a.SpladePooling", "path": "1"}], "SpladePooling"),
        ([{"type": "a.Transformer"}, {"type": "a.Normalize", "path": ""}], "must be Pooling"),
        ([{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../1_Pooling"}], "outside"),
        ([{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "/etc"}], "outside"),
    ],
)
def test_lists_of_modules_that_are_not_supported_are_refused(
    copied: Path, modules: list[dict[str, str]], message: str
) -> None:
    shutil.copytree(GOLDENS / "bert-embedder", copied)
    (copied / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(StartupError, match=message):
        load_encoder("m", copied, "float32")


@pytest.mark.parametrize("folder", ["1_Pooling", "2_Dense"])
@pytest.mark.parametrize("missing", ["config.json", "."])
def test_a_module_without_its_settings_is_refused(copied: Path, folder: str, missing: str) -> None:
    shutil.copytree(GOLDENS / "bert-embedder", copied)
    path = copied / folder / missing
    path.unlink() if path.is_file() else shutil.rmtree(path)
    with pytest.raises(StartupError, match=f"in folder '{folder}' must have a config.json there"):
        load_encoder("m", copied, "float32")


@pytest.mark.parametrize(
    ("name", "converted"),
    [
        ("xlm-roberta-embedder", ["."]),
        ("bert-embedder", ["."]),
        ("bert-embedder", ["2_Dense"]),
        ("bert-embedder", [".", "2_Dense"]),
    ],
)
def test_embeddings_are_equal_after_a_conversion(
    copied: Path, tmp_path: Path, name: str, converted: list[str]
) -> None:
    golden = EncoderGolden.read(name)
    changed(copied, name, "1_Pooling/config.json", pooling_mode="cls")
    expected = answers(load_encoder("m", copied, "float32"), golden.cases, rows=5, length=44)
    for folder in converted:
        weights = copied / folder / "model.safetensors"
        write_state_dict(weights.with_name("pytorch_model.bin"), load_file(weights))
        weights.unlink()
    convert_directory(copied, tmp_path / "target")
    model = load_encoder("m", tmp_path / "target", "float32")
    found = answers(model, golden.cases, rows=5, length=44)
    np.testing.assert_array_equal(found, expected)


def test_the_limit_of_tokens_is_that_of_the_files_and_of_the_positions(copied: Path) -> None:
    file = "sentence_bert_config.json"

    def limit() -> int:
        return load_encoder("m", copied, "float32").max_length

    changed(copied, "bert-embedder")
    assert limit() == 44
    changed(copied, "bert-embedder", "tokenizer_config.json", model_max_length=20)
    assert limit() == 20
    changed(copied, "bert-embedder", "tokenizer_config.json", model_max_length=int(1e30))
    assert limit() == 44
    for given, expected in ((30, 30), (999, 44)):
        changed(copied, "bert-embedder", file, max_seq_length=given)
        assert limit() == expected


def test_a_missing_tensor_of_a_head_is_named(copied: Path) -> None:
    shutil.copytree(GOLDENS / "roberta-labels", copied)
    path = copied / "model.safetensors"
    tensors = load_file(path)
    del tensors["classifier.out_proj.bias"]
    save_file(tensors, path)
    with pytest.raises(StartupError, match=r"classifier\.out_proj\.bias is missing"):
        load_encoder("m", copied, "float32")
