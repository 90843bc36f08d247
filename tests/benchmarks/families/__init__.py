"""Benchmark of families against other systems on a CPU: `make bench-families`.

Decoders of the shapes of GPT-2 and Qwen3-0.6B against llama.cpp, OpenVINO, CTranslate2 and PyTorch,
and encoder-decoders of BART's and Marian's shapes against CTranslate2 and PyTorch, alone and under
load.

As in `generation`, each contestant runs in its own environment and process, answers the same
questions (`generation.contestant`), and is called in turn, round after round. `python -m families
--help` lists the options.
"""
