"""`shaperouterd convert` turns CTranslate2's Whisper into the Hugging Face layout."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file

from shaperouter_service.checkpoints.conversion import convert_directory
from shaperouter_service.commands.group import cli
from shaperouter_service.errors import StartupError

# Of each part; all different, so that none can be taken for another.
WIDTH, INNER, MELS, VOCAB, SOURCE, TARGET = 8, 12, 5, 60, 6, 7
LAYERS = {"encoder": 2, "decoder": 1}
HEADS = {"encoder": 4, "decoder": 2}

TYPES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}

SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|zh|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
# Of the first of these.
END = 40

Tensors = dict[str, np.ndarray]


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def _array(array: np.ndarray, number: int | None = None) -> bytes:
    number = TYPES[array.dtype.name] if number is None else number
    shape = struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
    return shape + struct.pack("<BI", number, array.nbytes) + array.tobytes()


def model_bin(
    tensors: Mapping[str, bytes],
    *,
    aliases: Mapping[str, str],
    version: int = 6,
    kind: str = "WhisperSpec",
    revision: int = 3,
) -> bytes:
    parts = [struct.pack("<I", version), _string(kind), struct.pack("<I", revision)]
    parts.append(struct.pack("<I", len(tensors)))
    parts += [_string(name) + content for name, content in tensors.items()]
    parts.append(struct.pack("<I", len(aliases)))
    parts += [_string(name) + _string(other) for name, other in aliases.items()]
    return b"".join(parts)


def reference(dtype: str = "float16") -> Tensors:
    """Random tensors of a Whisper as Transformers names them."""
    random = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(dtype)

    def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Tensors:
        made = {f"{name}.weight": draw(outputs, inputs)}
        return made | ({f"{name}.bias": draw(outputs)} if bias else {})

    def norm(name: str) -> Tensors:
        return {f"{name}.weight": draw(WIDTH), f"{name}.bias": draw(WIDTH)}

    tensors = {
        "model.encoder.conv1.weight": draw(WIDTH, MELS, 3),
        "model.encoder.conv1.bias": draw(WIDTH),
        "model.encoder.conv2.weight": draw(WIDTH, WIDTH, 3),
        "model.encoder.conv2.bias": draw(WIDTH),
        "model.decoder.embed_tokens.weight": draw(VOCAB, WIDTH),
    }
    for part, positions in (("encoder", SOURCE), ("decoder", TARGET)):
        tensors[f"model.{part}.embed_positions.weight"] = draw(positions, WIDTH)
        tensors |= norm(f"model.{part}.layer_norm")
        for layer in range(LAYERS[part]):
            block = f"model.{part}.layers.{layer}"
            for attention in ("self_attn", "encoder_attn")[: 2 if part == "decoder" else 1]:
                tensors |= norm(f"{block}.{attention}_layer_norm")
                for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    made = linear(f"{block}.{attention}.{name}", WIDTH, WIDTH, bias=name[0] != "k")
                    tensors |= made
            tensors |= norm(f"{block}.final_layer_norm")
            tensors |= linear(f"{block}.fc1", WIDTH, INNER)
            tensors |= linear(f"{block}.fc2", INNER, WIDTH)
    return tensors


def as_ctranslate2(tensors: Tensors) -> Tensors:
    """The same tensors as CTranslate2 names and stacks them."""
    made: Tensors = {
        "decoder/activation": np.array(3, np.int8),
        "decoder/pre_norm": np.array(1, np.int8),
        "decoder/scale_embeddings": np.array(0, np.int8),
        "decoder/embeddings/weight": tensors["model.decoder.embed_tokens.weight"],
    }

    def copy(target: str, source: str, *, norm: bool = False) -> None:
        made[f"{target}/{'gamma' if norm else 'weight'}"] = tensors[f"{source}.weight"]
        made[f"{target}/{'beta' if norm else 'bias'}"] = tensors[f"{source}.bias"]

    def stack(target: str, source: str, names: str) -> None:
        like = tensors[f"{source}.q_proj.bias"]
        parts = [f"{source}.{name}_proj" for name in names]
        made[f"{target}/weight"] = np.concatenate([tensors[f"{part}.weight"] for part in parts])
        made[f"{target}/bias"] = np.concatenate(
            [tensors.get(f"{part}.bias", np.zeros_like(like)) for part in parts]
        )

    for name in ("conv1", "conv2"):
        copy(f"encoder/{name}", f"model.encoder.{name}")
    for part, layers in LAYERS.items():
        made[f"{part}/num_heads"] = np.array(HEADS[part], np.int16)
        made[f"{part}/position_encodings/encodings"] = tensors[
            f"model.{part}.embed_positions.weight"
        ]
        copy(f"{part}/layer_norm", f"model.{part}.layer_norm", norm=True)
        for layer in range(layers):
            source, target = f"model.{part}.layers.{layer}", f"{part}/layer_{layer}"
            copy(f"{target}/self_attention/layer_norm", f"{source}.self_attn_layer_norm", norm=True)
            stack(f"{target}/self_attention/linear_0", f"{source}.self_attn", "qkv")
            copy(f"{target}/self_attention/linear_1", f"{source}.self_attn.out_proj")
            if part == "decoder":
                cross = f"{source}.encoder_attn"
                copy(f"{target}/attention/layer_norm", f"{cross}_layer_norm", norm=True)
                stack(f"{target}/attention/linear_0", cross, "q")
                stack(f"{target}/attention/linear_1", cross, "kv")
                copy(f"{target}/attention/linear_2", f"{cross}.out_proj")
            copy(f"{target}/ffn/layer_norm", f"{source}.final_layer_norm", norm=True)
            copy(f"{target}/ffn/linear_0", f"{source}.fc1")
            copy(f"{target}/ffn/linear_1", f"{source}.fc2")
    return made


TIED = {"decoder/projection/weight": "decoder/embeddings/weight"}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a directory of CTranslate2."""

    def write(content: bytes | None = None) -> Path:
        source = tmp_path / "source"
        source.mkdir()
        if content is None:
            stored = as_ctranslate2(reference())
            content = model_bin({n: _array(a) for n, a in stored.items()}, aliases=TIED)
        (source / "model.bin").write_bytes(content)
        added = [{"id": END + index, "content": text} for index, text in enumerate(SPECIAL)]
        (source / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
        config = {"suppress_ids": [1, 2], "suppress_ids_begin": [3], "alignment_heads": [[0, 1]]}
        (source / "config.json").write_text(json.dumps(config))
        return source

    return write


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def test_tensors_get_the_names_of_transformers(write: Write, tmp_path: Path) -> None:
    convert_directory(write(), tmp_path / "target")
    made, expected = load_file(tmp_path / "target" / "model.safetensors"), reference()
    assert made.keys() == expected.keys()
    assert [name for name in made if not np.array_equal(made[name], expected[name])] == []


def test_quantized_tensors_become_float32(write: Write, tmp_path: Path) -> None:
    expected = reference("float32")
    tensors = {}
    for name, array in as_ctranslate2(expected).items():
        if name.endswith("/weight"):
            scale = 127 / np.abs(array.reshape([len(array), -1])).max(axis=1)
            quantized = np.rint(array * scale.reshape([-1] + [1] * (array.ndim - 1)))
            tensors[name] = _array(quantized.astype(np.int8))
            tensors[f"{name}_scale"] = _array(scale.astype(np.float32))
        else:
            tensors[name] = _array(array)
    convert_directory(write(model_bin(tensors, aliases=TIED)), tmp_path / "target")
    made = load_file(tmp_path / "target" / "model.safetensors")
    assert {array.dtype.name for array in made.values()} == {"float32"}
    # Half of a step of 1/127 of a row's largest, which is below 4 in such few draws.
    assert max(np.abs(made[name] - expected[name]).max() for name in made) <= 0.5 * 4 / 127


def test_bfloat16_becomes_float32_of_the_same_values(write: Write, tmp_path: Path) -> None:
    expected = reference("float32")
    # Cut to what bfloat16 can hold.
    expected = {
        name: (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        for name, array in expected.items()
    }
    tensors = {
        name: _array((array.view(np.uint32) >> 16).astype(np.uint16), 5)
        if array.ndim
        else _array(array)
        for name, array in as_ctranslate2(expected).items()
    }
    convert_directory(write(model_bin(tensors, aliases=TIED)), tmp_path / "target")
    made = load_file(tmp_path / "target" / "model.safetensors")
    assert [name for name in made if not np.array_equal(made[name], expected[name])] == []


def test_an_untied_output_matrix_is_kept(write: Write, tmp_path: Path) -> None:
    tensors = as_ctranslate2(reference())
    tensors["decoder/projection/weight"] = tensors["decoder/embeddings/weight"] + 1
    content = model_bin({name: _array(a) for name, a in tensors.items()}, aliases={})
    convert_directory(write(content), tmp_path / "target")
    made = load_file(tmp_path / "target" / "model.safetensors")
    assert np.array_equal(made["proj_out.weight"], tensors["decoder/projection/weight"])
    assert not read(tmp_path / "target" / "config.json")["tie_word_embeddings"]


def test_config_has_the_dimensions(write: Write, tmp_path: Path) -> None:
    convert_directory(write(), tmp_path / "target")
    config = read(tmp_path / "target" / "config.json")
    expected = {
        "model_type": "whisper",
        "d_model": WIDTH,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": INNER,
        "decoder_ffn_dim": INNER,
        "num_mel_bins": MELS,
        "max_source_positions": SOURCE,
        "max_target_positions": TARGET,
        "vocab_size": VOCAB,
        "decoder_start_token_id": END + 1,
        "eos_token_id": END,
    }
    assert {name: config[name] for name in expected} == expected


def test_generation_config_has_the_rules_of_decoding(write: Write, tmp_path: Path) -> None:
    convert_directory(write(), tmp_path / "target")
    config = read(tmp_path / "target" / "generation_config.json")
    expected = {
        "suppress_tokens": [1, 2],
        "begin_suppress_tokens": [3],
        "alignment_heads": [[0, 1]],
        "no_timestamps_token_id": END + 9,
        "prev_sot_token_id": END + 7,
        "is_multilingual": False,
    }
    assert {name: config[name] for name in expected} == expected


def test_the_command_names_source_and_target(write: Write, tmp_path: Path) -> None:
    source, target = write(), tmp_path / "target"
    result = CliRunner().invoke(cli, ["convert", str(source), str(target)])
    assert result.output == f"converted {source} to {target}\n"


VALID = {name: _array(array) for name, array in as_ctranslate2(reference()).items()}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read"),
        (b"\x06\x00", "is damaged: it ends after 2 bytes"),
        (model_bin(VALID, aliases=TIED)[:-9], "is damaged: it ends after"),
        (model_bin(VALID, aliases=TIED, version=4), "binary version 6, got 4"),
        (model_bin(VALID, aliases=TIED, kind="TransformerSpec"), "got TransformerSpec"),
        (model_bin(VALID, aliases=TIED, revision=2), "got WhisperSpec of revision 2"),
        (
            model_bin(VALID | {"decoder/activation": _array(np.array(1, np.int8))}, aliases=TIED),
            "decoder/activation must be 3, got 1",
        ),
        (
            model_bin({n: c for n, c in VALID.items() if "conv2" not in n}, aliases=TIED),
            "tensor encoder/conv2/weight is missing",
        ),
        (
            model_bin(VALID | {"encoder/conv1/bias": _array(np.zeros(8, np.int8))}, aliases=TIED),
            "tensor encoder/conv1/bias_scale is missing",
        ),
        (
            model_bin({"a": _array(np.zeros(8, np.int8), 9)}, aliases={}),
            "tensor a has type 9, not one of 0 to 5",
        ),
        (
            model_bin({"a": _array(np.zeros(8, np.int8), 0)}, aliases={}),
            "tensor a of shape [8] has 8 bytes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unusable_weights_are_refused(
    write: Write, tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(StartupError) as raised:
        convert_directory(write(content), tmp_path / "target")
    assert message in str(raised.value)
    assert not (tmp_path / "target").exists()


def test_a_directory_without_tokenizer_is_refused(write: Write, tmp_path: Path) -> None:
    source = write()
    (source / "tokenizer.json").unlink()
    with pytest.raises(StartupError, match=r"has no tokenizer\.json; copy it from"):
        convert_directory(source, tmp_path / "target")


def test_a_tokenizer_of_another_model_is_refused(write: Write, tmp_path: Path) -> None:
    source = write()
    (source / "tokenizer.json").write_text("{}")
    with pytest.raises(StartupError, match=r"has no token <\|startoftranscript\|>"):
        convert_directory(source, tmp_path / "target")


def test_a_target_with_files_is_refused(write: Write, tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "precious").touch()
    with pytest.raises(StartupError, match="must be an empty directory or not exist"):
        convert_directory(write(), tmp_path / "target")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["precious"]
