"""llama.cpp's side of ``make bench-speculation``: greedy text with and without look-up decoding.

Run in its own environment, with a checkpoint of GPT-2's layout and a number of threads. A line of
its input is a request: `[prompt, number of new tokens, whether to look up]`. A line of its output
is an answer: `[seconds, tokens]`. The first line of its output says that it is ready.

Proposals are those of llama-cpp-python's look-up, with its default numbers. They are checked by
calls of `llama_decode`, and the likeliest token is taken.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
from safetensors.numpy import load_file

PLACES = 256
# The default of `LlamaPromptLookupDecoding`.
PROPOSALS = 10

NAMES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def write(directory: Path, path: Path) -> None:
    """Writes a GPT-2 checkpoint as GGUF, without a tokenizer."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    unfinished = path.with_suffix(".unfinished")
    writer = gguf.GGUFWriter(unfinished, "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config.get("layer_norm_epsilon", 1e-5))
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for name, tensor in load_file(directory / "model.safetensors").items():
        *layer, rest = name.removeprefix("transformer.").replace("h.", "", 1).split(".", 1)
        if not name.startswith("transformer.h."):
            layer, rest = [], name.removeprefix("transformer.")
        module, kind = rest.rsplit(".", 1)
        # GPT-2's products have transposed weights.
        values = tensor.T if module.rpartition(".")[2].startswith("c_") else tensor
        prefix = f"blk.{layer[0]}." if layer else ""
        writer.add_tensor(f"{prefix}{NAMES[module]}.{kind}", np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(path)


class Model:
    """A GGUF model, and a context with the library's defaults."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp.llama_backend_init()
        loading = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), loading)
        if not self._model:
            raise ValueError(f"cannot load {path}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = PLACES
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        self._memory = llama_cpp.llama_get_memory(self._context)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._batch = llama_cpp.llama_batch_init(PLACES, 0, 1)

    def generate(self, prompt: Sequence[int], new_tokens: int, *, looks_up: bool) -> list[int]:
        """The likeliest tokens after a prompt."""
        look_up = LlamaPromptLookupDecoding(num_pred_tokens=PROPOSALS)
        llama_cpp.llama_memory_clear(self._memory, False)
        known = [*prompt]
        known += self._check(known, 0, wanted=1)
        while (made := len(known) - len(prompt)) < new_tokens:
            proposed = look_up(np.array(known, np.intc)).tolist() if looks_up else []
            read = [known[-1], *proposed[: new_tokens - made - 1]]
            best = self._check(read, len(known) - 1, wanted=len(read))
            came = next(
                (place for place, token in enumerate(read[1:]) if best[place] != token),
                len(read) - 1,
            )
            known += best[: came + 1]
            llama_cpp.llama_memory_seq_rm(self._memory, 0, len(known) - 1, -1)
        return known[len(prompt) :]

    def _check(self, tokens: Sequence[int], position: int, *, wanted: int) -> list[int]:
        """Reads tokens from a position on, and returns the likeliest after each of the last."""
        batch, count = self._batch, len(tokens)
        for place, token in enumerate(tokens):
            batch.token[place] = token
            batch.pos[place] = position + place
            batch.n_seq_id[place] = 1
            batch.seq_id[place][0] = 0
            batch.logits[place] = place >= count - wanted
        batch.n_tokens = count
        if status := llama_cpp.llama_decode(self._context, batch):
            raise ValueError(f"llama_decode returned {status}")
        found = []
        for place in range(count - wanted, count):
            logits = llama_cpp.llama_get_logits_ith(self._context, place)
            found.append(int(np.ctypeslib.as_array(logits, shape=(self._vocabulary,)).argmax()))
        return found


def main() -> None:
    """Answers requests until the input ends."""
    directory, threads = Path(sys.argv[1]), int(sys.argv[2])
    path = directory.with_name(f"{directory.name}-F32.gguf")
    if not path.exists():
        write(directory, path)
    model = Model(path, threads)
    print("ready", flush=True)
    for line in sys.stdin:
        prompt, new_tokens, looks_up = json.loads(line)
        started = time.perf_counter()
        tokens = model.generate(prompt, new_tokens, looks_up=looks_up)
        print(json.dumps([time.perf_counter() - started, tokens]), flush=True)


if __name__ == "__main__":
    main()
