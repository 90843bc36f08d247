"""Writes a Qwen3 checkpoint as GGUF: python -m families.gguf_checkpoint DIRECTORY FILE TYPE.

llama.cpp's own converter is a script of its repository, which no package contains; this one writes
the same tensors, without a tokenizer.
"""

import argparse
import json
import re
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file

# safetensors reads bfloat16 if NumPy knows the type.
assert ml_dtypes.bfloat16

# Names in the checkpoint and in GGUF; those of layers begin with "model.layers.N." and "blk.N.".
NAMES = {
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
}
FILE_TYPES = {
    "F32": gguf.LlamaFileType.ALL_F32,
    "BF16": gguf.LlamaFileType.MOSTLY_BF16,
    "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}


def write(directory: Path, path: Path, kind: str) -> None:
    """Writes the file; norms stay in float32, as in all GGUF files."""
    config = json.loads((directory / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "qwen3")
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
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(FILE_TYPES[kind])
    for name, tensor in load_file(directory / "model.safetensors").items():
        values = tensor.astype(np.float32)
        stored = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
        writer.add_tensor(_name(name), gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _name(name: str) -> str:
    found = re.fullmatch(r"(?:model\.layers\.(\d+)\.)?(.+)\.weight", name)
    assert found
    layer, rest = found.groups()
    return f"{f'blk.{layer}.' if layer else ''}{NAMES[rest]}.weight"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("path", type=Path)
    parser.add_argument("kind", choices=FILE_TYPES)
    given = parser.parse_args()
    write(given.directory, given.path, given.kind)
