"""Writes Qwen3 or GPT-2 as GGUF: python -m families.gguf_checkpoint DIRECTORY FILE TYPE.

llama.cpp's own converter is a script of its repository, which no package contains; this one writes
the same tensors, without a tokenizer. With --words, it writes the words of the checkpoint's
tokenizer, which llama.cpp's server needs; it still cannot split texts into them.
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

# safetensors reads bfloat16 if NumPy knows the type.
assert ml_dtypes.bfloat16

# Names in the checkpoint and in GGUF, by the family; those of layers begin with a prefix and the
# layer's number.
NAMES = {
    "qwen3": {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    },
    "gpt2": {
        "transformer.wte": "token_embd",
        "transformer.wpe": "position_embd",
        "transformer.ln_f": "output_norm",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
}
PREFIX = re.compile(r"(?:model\.layers|transformer\.h)\.(\d+)\.")
# GPT-2 stores these with inputs first.
TRANSPOSED = {"attn_qkv", "attn_output", "ffn_up", "ffn_down"}
# Positions are looked up, not multiplied.
EXACT = {"position_embd"}
FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


def write(directory: Path, path: Path, kind: str, *, with_words: bool = False) -> None:
    """Writes the file; norms stay in float32, as in all GGUF files."""
    config = json.loads((directory / "config.json").read_text())
    family = config["model_type"]
    writer = gguf.GGUFWriter(path, family)
    {"qwen3": _describe_qwen3, "gpt2": _describe_gpt2}[family](writer, config)
    writer.add_vocab_size(config["vocab_size"])
    if with_words:
        _add_words(writer, directory)
    else:
        writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(FILE_TYPES[kind])
    for name, tensor in load_file(directory / "model.safetensors").items():
        prefix, stem, suffix = _name(name, NAMES[family])
        values = tensor.astype(np.float32)
        if family == "gpt2" and values.ndim > 1 and stem in TRANSPOSED:
            values = np.ascontiguousarray(values.T)
        is_exact = values.ndim == 1 or stem in EXACT
        stored = gguf.GGMLQuantizationType["F32" if is_exact else kind]
        quantized = gguf.quants.quantize(values, stored)
        writer.add_tensor(f"{prefix}{stem}.{suffix}", quantized, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_words(writer: gguf.GGUFWriter, directory: Path) -> None:
    """Adds a tokenizer's words, as those of pairs of bytes, with a pair that never occurs."""
    tokenizer = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(words))
    writer.add_token_merges(["~ ~"])
    end = vocabulary[tokenizer["model"]["unk_token"]]
    writer.add_bos_token_id(end)
    writer.add_eos_token_id(end)


def _describe_qwen3(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _describe_gpt2(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(1e-5)


def _name(name: str, names: Mapping[str, str]) -> tuple[str, str, str]:
    """The prefix with the layer's number, the name without it, and what it is."""
    layer = PREFIX.match(name)
    stem, suffix = name[layer.end() if layer else 0 :].rsplit(".", 1)
    return (f"blk.{layer[1]}." if layer else ""), names[stem], suffix


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("kind", choices=FILE_TYPES)
    parser.add_argument("--words", action="store_true", help="write the tokenizer's words")
    given = parser.parse_args()
    write(given.directory, given.path, given.kind, with_words=given.words)
