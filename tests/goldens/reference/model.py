"""The reference: Transformers' ``generate`` on a checkpoint, in float32 and in float64.

A golden is useful only if rounding cannot change it. ``safely`` checks this for any options:
float32 and float64 must give the same tokens, and so must float64 with noise far above the rounding
errors of float32. All numbers that are written come from the float64 run, so they do
not depend on the machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

# Minimum lead of the best logit over the second: below it, another order of additions could swap
# them.
MIN_MARGIN = 1e-3
# The lead must also be this many times the largest error that float32 made in the case's logits.
MIN_MARGIN_OVER_ERROR = 20.0
# Number of times that a search is repeated with other noise on its logits. If rounding could change
# a decision, noise changes it in half of the runs, so only one such decision in a thousand would
# pass unnoticed.
NOISY_RUNS = 10
MAX_ATTEMPTS = 1000

Options = dict[str, Any]

# Names of our options in `generate`, where they differ.
ARGUMENTS = {
    "eos_token_ids": "eos_token_id",
    "bad_words_token_ids": "bad_words_ids",
    "logit_bias": "sequence_bias",
    "stop": "stop_strings",
}
EARLY_STOPPING = {"heuristic": False, "first": True, "never": "never"}
# Each option's value without an effect, which overrides the checkpoint's defaults.
NEUTRAL: dict[str, Any] = {
    "do_sample": False,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": None,
    "typical_p": 1.0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "renormalize_logits": False,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "min_new_tokens": None,
    "min_length": 0,
}


class GoldenError(Exception):
    """A golden would be of no use; the message says which one and why."""


class Float64(TorchFunctionMode):
    """Context that turns float32 into float64, because ``generate`` casts its scores to float32.

    It requests float32 by name and by default, so the default changes, too.
    """

    def __enter__(self) -> Self:
        """Begin."""
        torch.set_default_dtype(torch.float64)
        super().__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        """End."""
        super().__exit__(*exception)
        torch.set_default_dtype(torch.float32)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call ``func`` with another dtype."""

        def widened(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        named = {name: widened(value) for name, value in (kwargs or {}).items()}
        return func(*(widened(value) for value in args), **named)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Continuation:
    """The reference's greedy output after one prompt.

    Attributes:
        prompt: Token ids of the prompt, or of the source if the model has an encoder.
        decoder_prompt: Token ids of the decoder's prompt, after its start token; empty otherwise.
        max_new_tokens: The requested limit.
        token_ids: The new tokens only, with the end token if one ended it.
        finish_reason: ``eos`` if it ends with an end token, even at the limit; else ``length``.
        margin: The smallest lead of the best logit over the second best at any step, in float64.
        logit_error: The largest difference between a logit in float32 and in float64.
        length: Number of tokens in the sequence: those of `before`, and the new ones.
    """

    prompt: list[int]
    max_new_tokens: int
    token_ids: list[int]
    finish_reason: str
    margin: float
    logit_error: float
    length: int
    decoder_prompt: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Generation:
    """The reference's output with some options.

    Attributes:
        token_ids: New tokens of each sequence, with the end token and without padding.
        finish_reasons: For each sequence, ``eos`` if its last token is an end token, ``stop`` if
            its text has a stop string, else ``length``.
        scores: Score of each sequence with beam search; otherwise empty.
        raw: Logits of the model at each step. [steps, R, V], R one or the number of beams.
        processed: Logits after all processors; with beam search, log-probabilities.
    """

    token_ids: list[list[int]]
    finish_reasons: list[str]
    scores: list[float]
    raw: torch.Tensor
    processed: torch.Tensor

    @property
    def best(self) -> list[int]:
        """The tokens of the first sequence, which is the best."""
        return self.token_ids[0]


class Reference:
    """A checkpoint in the reference implementation."""

    auto_class: Any = AutoModelForCausalLM

    @staticmethod
    def of(directory: Path) -> Reference:
        """The reference for the checkpoint in ``directory``."""
        config = AutoConfig.from_pretrained(directory, local_files_only=True)
        return SourceReference(directory) if config.is_encoder_decoder else Reference(directory)

    def __init__(self, directory: Path) -> None:
        """Load the checkpoint in ``directory`` twice, in float32 and in float64."""
        self.model = self._load(directory, torch.float32)
        self.exact = self._load(directory, torch.float64)
        # Stop strings need it; None for a checkpoint without one.
        self.tokenizer: PreTrainedTokenizerBase | None = None
        self.max_length: int = self._max_length()
        self.vocab_size: int = self.model.config.vocab_size
        eos = self.model.generation_config.eos_token_id
        self.eos_token_ids: list[int] = [eos] if isinstance(eos, int) else list(eos or [])

    def _max_length(self) -> int:
        config = self.model.config
        length: int = config.max_position_embeddings
        if (getattr(config, "rope_parameters", None) or {}).get("rope_type") == "longrope":
            # Beyond it, all tokens get other frequencies.
            length = config.original_max_position_embeddings
        return length

    def _load(self, directory: Path, dtype: torch.dtype) -> PreTrainedModel:
        model: PreTrainedModel = self.auto_class.from_pretrained(
            directory, dtype=dtype, attn_implementation="eager", local_files_only=True
        )
        return model.eval()

    def before(self, prompt: list[int], options: Options) -> list[int]:
        """The tokens before the new ones."""
        del options
        return prompt

    def inputs(self, prompt: list[int], options: Options) -> dict[str, torch.Tensor]:
        """Inputs of a call of the model."""
        del options
        input_ids = torch.tensor([prompt])
        return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}

    @torch.inference_mode()
    def exact_logits(
        self, prompt: list[int], options: Options | None = None, new: Sequence[int] = ()
    ) -> torch.Tensor:
        """Logits in float64 for each of ``new`` and the next token, from one pass without a cache.

        [1 + N, V].
        """
        with Float64():
            output = self.exact(**self._whole_inputs(prompt, options or {}, new), use_cache=False)
        logits: torch.Tensor = output.logits[0, -1 - len(new) :]
        return logits

    def _whole_inputs(
        self, prompt: list[int], options: Options, new: Sequence[int]
    ) -> dict[str, torch.Tensor]:
        del options
        return {"input_ids": torch.tensor([[*prompt, *new]])}

    @torch.inference_mode()
    def continue_greedily(
        self, prompt: list[int], max_new_tokens: int, decoder_prompt: Sequence[int] = ()
    ) -> Continuation:
        """Continue ``prompt`` with ``generate``, and measure how safe each step was.

        Each of its steps in float32 is computed once more in float64, without a cache.

        Raises:
            GoldenError: float64 would have chosen another token at some step.
        """
        options: Options = {"max_new_tokens": max_new_tokens}
        if decoder_prompt:
            options["decoder_token_ids"] = list(decoder_prompt)
        rough = self.generate(prompt, options)
        token_ids = rough.best
        if rough.finish_reasons != ["eos"] and len(token_ids) != max_new_tokens:
            raise GoldenError(f"{len(token_ids)} tokens of {max_new_tokens} and no end token")

        exact = self.exact_logits(prompt, options, token_ids[:-1])
        if exact.argmax(-1).tolist() != token_ids:
            raise GoldenError("float32 and float64 choose different tokens")
        best = exact.topk(2).values
        return Continuation(
            prompt=prompt,
            max_new_tokens=max_new_tokens,
            token_ids=token_ids,
            finish_reason=rough.finish_reasons[0],
            margin=float((best[:, 0] - best[:, 1]).min()),
            logit_error=float((rough.raw[:, 0] - exact).abs().max()),
            length=len(self.before(prompt, options)) + len(token_ids),
            decoder_prompt=list(decoder_prompt),
        )

    @torch.inference_mode()
    def generate(
        self, prompt: list[int], options: Options, *, exact: bool = False, noise: float = 0.0
    ) -> Generation:
        """Continue ``prompt`` with Transformers' ``generate``.

        Args:
            prompt: Token ids.
            options: As ``GenerationOptions`` names them, and ``do_sample``.
            exact: In float64, scores included, instead of float32.
            noise: Added to each logit at most, up or down; drawn from the global generator.
        """
        model = self.exact if exact else self.model
        # A batch of one is never padded, but without the token `generate` warns.
        arguments = NEUTRAL | {"pad_token_id": self.eos_token_ids[0] if self.eos_token_ids else 0}
        for name, value in options.items():
            if name == "decoder_token_ids":
                continue
            if name == "early_stopping":
                value = EARLY_STOPPING[value]
            elif name == "logit_bias":
                value = [[[token], float(bias)] for token, bias in value]
            elif name == "stop":
                arguments["tokenizer"] = self.tokenizer
            arguments[ARGUMENTS.get(name, name)] = value
        before = self.before(prompt, options)
        with Float64() if exact else contextlib.nullcontext(), noisy_logits(model, noise):
            output = model.generate(
                **self.inputs(prompt, options),
                return_dict_in_generate=True,
                output_logits=True,
                output_scores=True,
                **arguments,
            )
        sequences = [sequence[len(before) :] for sequence in output.sequences.tolist()]
        scores = []
        if arguments["num_beams"] > 1:
            # After the end of a sequence, the indices of its beams are -1.
            lengths = (output.beam_indices >= 0).sum(-1).tolist()
            sequences = [tokens[:n] for tokens, n in zip(sequences, lengths, strict=True)]
            scores = output.sequences_scores.tolist()
        ends = options.get("eos_token_ids", self.eos_token_ids)
        return Generation(
            token_ids=sequences,
            finish_reasons=[
                "eos" if tokens[-1] in ends else self._stopped(tokens, options) or "length"
                for tokens in sequences
            ],
            scores=scores,
            raw=torch.stack(output.logits),
            processed=torch.stack(output.scores),
        )

    def _stopped(self, tokens: list[int], options: Options) -> str:
        """``stop`` if the text of new tokens has a stop string."""
        if "stop" not in options or self.tokenizer is None:
            return ""
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return "stop" if any(string in text for string in options["stop"]) else ""

    def probabilities(self, prompt: list[int], temperature: float) -> list[float]:
        """The distribution of the token after ``prompt``. [V]."""
        logits = self.exact_logits(prompt)[-1]
        values: list[float] = (logits / temperature).softmax(-1).tolist()
        return values


class SourceReference(Reference):
    """A checkpoint with an encoder, whose prompt is the source.

    The option ``decoder_token_ids`` is the decoder's prompt, after the token that it starts with.
    """

    auto_class = AutoModelForSeq2SeqLM

    def _max_length(self) -> int:
        config = self.model.config
        length: int = getattr(config, "n_positions", None) or config.max_position_embeddings
        return length

    def before(self, prompt: list[int], options: Options) -> list[int]:
        """The decoder's start and prompt."""
        del prompt
        start = self.model.generation_config.decoder_start_token_id
        return [start, *options.get("decoder_token_ids", ())]

    def inputs(self, prompt: list[int], options: Options) -> dict[str, torch.Tensor]:
        """The source and the decoder's prompt."""
        decoder = torch.tensor([self.before(prompt, options)])
        return {**super().inputs(prompt, options), "decoder_input_ids": decoder}

    def _whole_inputs(
        self, prompt: list[int], options: Options, new: Sequence[int]
    ) -> dict[str, torch.Tensor]:
        decoder = torch.tensor([[*self.before(prompt, options), *new]])
        return {"input_ids": torch.tensor([prompt]), "decoder_input_ids": decoder}


@contextlib.contextmanager
def noisy_logits(model: PreTrainedModel, noise: float) -> Iterator[None]:
    """Context in which ``model`` adds noise between ``-noise`` and ``noise`` to each logit."""

    def add(_module: Any, _inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits + noise * (2.0 * torch.rand_like(logits) - 1.0)

    if not noise:
        yield
        return
    hook = model.get_output_embeddings().register_forward_hook(add)
    try:
        yield
    finally:
        hook.remove()


def is_safe(continuation: Continuation) -> bool:
    """Whether every step's lead is large enough that rounding cannot change the token."""
    least = max(MIN_MARGIN, MIN_MARGIN_OVER_ERROR * continuation.logit_error)
    return continuation.margin > least


def is_diverse(token_ids: list[int]) -> bool:
    """Whether no token dominates: a wrong implementation, too, may repeat one token."""
    (_, most), *_ = Counter(token_ids).most_common(1)
    return most <= 1 + len(token_ids) // 3


def float32_error(rough: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error of ``rough`` at tokens that are not banned; infinite if steps differ."""
    if rough.shape != exact.shape:
        return math.inf
    finite = exact.isfinite()
    if not torch.equal(finite, rough.isfinite()):
        return math.inf
    return float((rough - exact)[finite].abs().max())


def safely(
    reference: Reference, prompt: list[int], options: Options
) -> tuple[Generation, float] | None:
    """The float64 output with ``options``, and its margin; None if rounding could change it.

    A greedy step is judged by its lead, which is the margin. A beam search decides between sums
    over many steps, and not each decision matters, so it is run again with noise, and its margin
    is the noise.
    """
    rough = reference.generate(prompt, options)
    exact = reference.generate(prompt, options, exact=True)
    if rough.token_ids != exact.token_ids:
        return None
    error = float32_error(rough.processed, exact.processed)
    least = max(MIN_MARGIN, MIN_MARGIN_OVER_ERROR * error)
    if not exact.scores:
        best = exact.processed[:, 0].topk(2).values
        margin = float((best[:, 0] - best[:, 1]).min())
        return (exact, margin) if least < margin < math.inf else None
    return (exact, least) if withstands_noise(reference, prompt, options, exact, least) else None


def withstands_noise(
    reference: Reference, prompt: list[int], options: Options, expected: Generation, noise: float
) -> bool:
    """Whether the sequences stay the same with noise of up to ``noise`` on each logit."""
    if not math.isfinite(noise):
        return False
    for seed in range(NOISY_RUNS):
        torch.manual_seed(seed)
        noisy = reference.generate(prompt, options, exact=True, noise=noise)
        if noisy.token_ids != expected.token_ids:
            return False
    return True


def random_prompt(reference: Reference, seed: Iterable[int], length: int) -> list[int]:
    """Draws token ids from the whole vocabulary. In a prompt, end tokens have no effect."""
    rng = np.random.default_rng(list(seed))
    prompt: list[int] = rng.integers(reference.vocab_size, size=length).tolist()
    return prompt
