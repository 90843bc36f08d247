"""Loads and runs a model of 3.2 billion parameters, and reports time and memory.

The checkpoint has the shape of Llama 3.2 3B, random weights in bfloat16, and five shards. It takes
6.4 GB in `build/bench/large`, which is kept for the next run.

Run by ``make bench-large``.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from harness.service import LOCAL, Service
from shaperouter import Client

DIRECTORY = Path(__file__).parents[2] / "build" / "bench" / "large"
WIDTH, INNER, LAYERS, HEADS, KEY_HEADS, HEAD_SIZE = 3072, 8192, 28, 24, 8, 128
VOCABULARY = 128_256
SHARDS = 4  # of layers; one more has the embeddings
PROMPT = list(range(1, 33))
NEW_TOKENS = 32
# Numbers that the tensors are cut from: drawing billions takes minutes.
POOL = 2**24
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": HEAD_SIZE,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
    "eos_token_id": 128_001,
}


def main() -> None:
    """Measures and prints."""
    if not (DIRECTORY / "model.safetensors.index.json").exists():
        print(f"writing {DIRECTORY}", flush=True)
        _write_checkpoint()
    started = time.monotonic()
    service = Service(
        "serve",
        f"--model=large={DIRECTORY}",
        "--dtype=int8",
        "--max-length=2048",
        "--slots=4",
        f"--listen={LOCAL}",
        f"--metrics-listen={LOCAL}",
    )
    try:
        service.wait_for_log("weights loaded")
        _tell("weights loaded", started, service)
        service.wait_until_ready()
        _tell("ready", started, service)
        with Client(service.address) as client:
            for turn in ("first", "second"):
                asked = time.monotonic()
                client.generate(PROMPT, max_new_tokens=NEW_TOKENS, timeout=600)
                _tell(f"{NEW_TOKENS} tokens, {turn} request", asked, service)
    finally:
        service.close()


def _tell(what: str, since: float, service: Service) -> None:
    """Prints the time since an event, and the memory of the worker now and at its highest."""
    status = Path(f"/proc/{service.worker_pid()}/status").read_text()
    now, highest = (
        int(found[1]) / 2**20
        for name in ("VmRSS", "VmHWM")
        if (found := re.search(rf"{name}:\s+(\d+)", status))
    )
    seconds = time.monotonic() - since
    print(f"{what}: {seconds:.1f} s; worker {now:.1f} GiB, highest {highest:.1f} GiB", flush=True)


def _write_checkpoint() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    (DIRECTORY / "config.json").write_text(json.dumps(CONFIG))
    rng = np.random.default_rng(0)
    pool = (0.02 * rng.standard_normal(POOL, dtype=np.float32)).astype(ml_dtypes.bfloat16)
    shards: dict[str, str] = {}

    def save(tensors: dict[str, tuple[int, ...]]) -> None:
        name = f"model-{len(set(shards.values())):05d}.safetensors"
        arrays = {}
        for tensor, shape in tensors.items():
            if len(shape) == 1:
                arrays[tensor] = np.ones(shape, ml_dtypes.bfloat16)
            else:
                first = int(rng.integers(POOL))
                arrays[tensor] = np.resize(np.roll(pool, first), int(np.prod(shape))).reshape(shape)
        save_file(arrays, DIRECTORY / name)
        shards.update(dict.fromkeys(tensors, name))

    save({"model.embed_tokens.weight": (VOCABULARY, WIDTH), "model.norm.weight": (WIDTH,)})
    for shard in range(SHARDS):
        layers = range(shard * LAYERS // SHARDS, (shard + 1) * LAYERS // SHARDS)
        save({name: shape for layer in layers for name, shape in _layer(layer)})
    index = json.dumps({"weight_map": shards})
    (DIRECTORY / "model.safetensors.index.json").write_text(index)


def _layer(layer: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    prefix = f"model.layers.{layer}"
    for name, shape in (
        ("self_attn.q_proj", (HEADS * HEAD_SIZE, WIDTH)),
        ("self_attn.k_proj", (KEY_HEADS * HEAD_SIZE, WIDTH)),
        ("self_attn.v_proj", (KEY_HEADS * HEAD_SIZE, WIDTH)),
        ("self_attn.o_proj", (WIDTH, HEADS * HEAD_SIZE)),
        ("mlp.gate_proj", (INNER, WIDTH)),
        ("mlp.up_proj", (INNER, WIDTH)),
        ("mlp.down_proj", (WIDTH, INNER)),
        ("input_layernorm", (WIDTH,)),
        ("post_attention_layernorm", (WIDTH,)),
    ):
        yield f"{prefix}.{name}.weight", shape


if __name__ == "__main__":
    main()
