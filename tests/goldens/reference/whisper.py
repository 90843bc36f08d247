"""Goldens of Whisper: tiny checkpoints, and the reference's results for sounds.

The arrays of a checkpoint are sounds, and what the model makes of the first of them. Its JSON has
transcripts: what Transformers' ``generate`` makes of the sounds, with the processors that Whisper's
own ``generate`` puts together, but without what that does around it. Hypotheses of beam search are
scored as in openai/whisper.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from transformers import (
    GenerationConfig,
    GenerationMixin,
    LogitsProcessor,
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTimeStampLogitsProcessor,
)

from .model import EARLY_STOPPING, GoldenError

SAMPLE_RATE = 16_000
# Number of tokens of the decoder's input in the arrays.
TOKENS = 9
# Sounds of each checkpoint, and minimum number of a recipe's transcripts that rounding cannot
# change.
SOUNDS, MIN_CASES = 4, 2
# Largest noise on a logit that must not change a transcript, and the number of runs with noise.
NOISE, NOISY_RUNS = 1e-3, 10

RECIPES: dict[str, dict[str, Any]] = {
    "greedy": {"timestamps": True, "max_new_tokens": 24},
    "without timestamps": {"timestamps": False, "max_new_tokens": 12},
    "beams": {
        "timestamps": True,
        "max_new_tokens": 20,
        "num_beams": 4,
        "num_return_sequences": 2,
        "early_stopping": "first",
    },
    "five beams": {
        "timestamps": True,
        "max_new_tokens": 20,
        "num_beams": 5,
        "early_stopping": "first",
    },
    "no repetition": {"timestamps": True, "max_new_tokens": 24, "no_repeat_ngram_size": 2},
    "a penalty": {"timestamps": True, "max_new_tokens": 24, "repetition_penalty": 1.5},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TinyWhisper:
    """One random checkpoint.

    Attributes:
        name: Folder under ``tests/goldens``, and name of the file of arrays beside it.
        seed: Seed of the weights, the sound and the tokens.
        config: Differences from the defaults of the model's configuration.
        languages: Number of languages; 0 makes the model English-only.
        eos_gain: A factor on the end token's output row, which sets how often it is chosen.
        dtype: Type of the weights on disk; the reference computes in float32 in any case.
        base_model: Save it as `WhisperModel`, whose keys lack the first prefix.
    """

    name: str
    seed: int
    config: dict[str, Any]
    languages: int
    eos_gain: float
    dtype: torch.dtype = torch.float32
    base_model: bool = False


# Number of text tokens of a tiny checkpoint; its special tokens have the ids after them.
TEXT_TOKENS = 90

TINY_WHISPERS = (
    # Encoder and decoder differ in every dimension that may differ; windows last 0.6 s.
    TinyWhisper(
        name="whisper-uneven",
        seed=3,
        config={
            "d_model": 24,
            "encoder_layers": 2,
            "encoder_attention_heads": 3,
            "encoder_ffn_dim": 40,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 56,
            "max_source_positions": 30,
            "max_target_positions": 64,
        },
        languages=5,
        eos_gain=2.0,
    ),
    # English-only, 128 bands, float16, keys without a prefix.
    TinyWhisper(
        name="whisper-english",
        seed=4,
        config={
            "d_model": 32,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 64,
            "decoder_layers": 2,
            "decoder_attention_heads": 2,
            "decoder_ffn_dim": 64,
            "max_source_positions": 40,
            "max_target_positions": 48,
            "num_mel_bins": 128,
        },
        languages=0,
        eos_gain=1.5,
        dtype=torch.float16,
        base_model=True,
    ),
)

# Standard deviations of parameters, by a part of their names; the first match counts. Those of
# cross-attention are large, because all sounds would otherwise have one transcript.
WEIGHT_SPREADS = (
    (".bias", 0.1),
    ("decoder.embed_positions.weight", 0.6),
    ("encoder.embed_positions.weight", 0.2),
    ("embed_tokens.weight", 0.4),
    ("encoder_attn.out_proj.weight", 0.8),
    ("out_proj.weight", 0.5),
    ("fc2.weight", 0.5),
    ("conv", 0.1),
    ("weight", 0.4),
)


def special_tokens(languages: int, timestamps: int) -> dict[str, int]:
    """Ids of the special tokens, in Whisper's order, and the size of the vocabulary."""
    names = ["end", "start", *(f"language {index}" for index in range(max(languages, 1)))]
    names += ["translate", "transcribe", "lm", "previous", "no_speech", "no_timestamps"]
    ids = {name: TEXT_TOKENS + index for index, name in enumerate(names)}
    return {**ids, "vocab_size": ids["no_timestamps"] + 1 + timestamps}


def draw_weights(model: WhisperForConditionalGeneration, seed: int) -> None:
    """Fill ``model`` with random weights: biases and gains, too, which are 0 and 1 in a new one."""
    rng = np.random.default_rng(seed)
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(tuple(parameter.shape))
        if "layer_norm.weight" in name:
            values = 1.0 + 0.3 * values
        else:
            values *= next(spread for part, spread in WEIGHT_SPREADS if part in name)
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(values))


def write_checkpoint(checkpoint: TinyWhisper, parent: Path) -> Path:
    """Write ``checkpoint`` in the Hugging Face layout and return its directory in ``parent``."""
    timestamps = checkpoint.config["max_source_positions"] + 1
    ids = special_tokens(checkpoint.languages, timestamps)
    common = {
        "bos_token_id": ids["end"],
        "eos_token_id": ids["end"],
        "pad_token_id": ids["end"],
        "decoder_start_token_id": ids["start"],
    }
    config = WhisperConfig(**checkpoint.config, **common, vocab_size=ids["vocab_size"])
    model = WhisperForConditionalGeneration(config)
    draw_weights(model, checkpoint.seed)
    with torch.no_grad():
        # If the head is tied, this is the embedding.
        model.proj_out.weight[ids["end"]] *= checkpoint.eos_gain
    model.to(checkpoint.dtype)

    directory = parent / checkpoint.name
    shutil.rmtree(directory, ignore_errors=True)
    saved = model.model if checkpoint.base_model else model
    saved.save_pretrained(directory)
    generation = {
        **common,
        "alignment_heads": [[layer, layer % 2] for layer in range(config.decoder_layers)],
        "begin_suppress_tokens": [3, ids["end"]],
        "is_multilingual": bool(checkpoint.languages),
        "max_initial_timestamp_index": 10,
        "max_length": config.max_target_positions,
        "no_timestamps_token_id": ids["no_timestamps"],
        "prev_sot_token_id": ids["previous"],
        "suppress_tokens": [1, 2, ids["start"], *range(ids["translate"], ids["no_timestamps"])],
    }
    if checkpoint.languages:
        tasks = {task: ids[task] for task in ("translate", "transcribe")}
        languages = {
            f"<|l{index}|>": ids[f"language {index}"] for index in range(checkpoint.languages)
        }
        generation |= {"lang_to_id": languages, "task_to_id": tasks}
    GenerationConfig(**generation).save_pretrained(directory)
    for path in directory.glob("*.safetensors"):
        path.chmod(0o644)  # safetensors lets only the owner read them.
    return directory


class Noise(LogitsProcessor):
    """Adds noise to the logits of a whole run, before all other processors."""

    def __init__(self, seed: int) -> None:
        """Take the seed of the noise."""
        self._random = torch.Generator().manual_seed(seed)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add it."""
        noise = torch.rand(scores.shape, generator=self._random)
        return scores + NOISE * (2 * noise - 1)


def leave_the_end_out(model: WhisperForConditionalGeneration, end: int) -> None:
    """Divides beam scores by lengths without the end token, as openai/whisper does."""
    update = model._update_finished_beams

    def updated(
        *,
        topk_running_sequences: torch.Tensor,
        topk_log_probs: torch.Tensor,
        cur_len: int,
        decoder_prompt_len: int,
        length_penalty: float,
        **others: Any,
    ) -> Any:
        # The scorer will divide by this.
        length = cur_len + 1 - decoder_prompt_len
        has_end = topk_running_sequences[..., cur_len] == end
        without_end = topk_log_probs * (length / max(1, length - 1)) ** length_penalty
        return update(
            topk_running_sequences=topk_running_sequences,
            topk_log_probs=torch.where(has_end, without_end, topk_log_probs),
            cur_len=cur_len,
            decoder_prompt_len=decoder_prompt_len,
            length_penalty=length_penalty,
            **others,
        )

    model._update_finished_beams = updated


class Reference:
    """A tiny checkpoint in the reference implementation."""

    def __init__(self, checkpoint: TinyWhisper, parent: Path) -> None:
        """Load the checkpoint, and draw its sounds."""
        self.model = WhisperForConditionalGeneration.from_pretrained(
            parent / checkpoint.name, dtype=torch.float32
        )
        # Only this implementation returns the weights of cross-attention.
        self.model.set_attn_implementation("eager")
        self.model.eval()
        leave_the_end_out(self.model, self.model.generation_config.eos_token_id)
        self.random = np.random.default_rng(checkpoint.seed)
        window = 2 * self.model.config.max_source_positions * 160
        noise = 0.1 * self.random.standard_normal([SOUNDS, window])
        # The last quarter of the first sound is silent, as if it were shorter than a window.
        noise[0, 3 * window // 4 :] = 0
        self.sounds = np.round(noise * 2**15).clip(-(2**15), 2**15 - 1).astype(np.int16)
        extractor = WhisperFeatureExtractor(
            feature_size=self.model.config.num_mel_bins, chunk_length=window / SAMPLE_RATE
        )
        extractor.n_samples = window
        self.features = extractor(
            list(self.sounds.astype(np.float32) / 2**15),
            sampling_rate=SAMPLE_RATE,
            return_tensors="pt",
        ).input_features

    def prompt(self, *, timestamps: bool) -> list[int]:
        """Prompt of the decoder: its start, language, task and timestamp tokens."""
        rules = self.model.generation_config
        prompt = [self.model.config.decoder_start_token_id]
        if rules.is_multilingual:
            prompt += [rules.lang_to_id["<|l1|>"], rules.task_to_id["transcribe"]]
        return prompt if timestamps else [*prompt, rules.no_timestamps_token_id]

    def generate(
        self, sound: int, prompt: list[int], options: dict[str, Any], noise: int | None = None
    ) -> list[dict[str, Any]]:
        """Generate sequences, best first."""
        rules, length = self.model.generation_config, len(prompt)
        options = dict(options)
        processors: list[LogitsProcessor] = [
            SuppressTokensAtBeginLogitsProcessor(rules.begin_suppress_tokens, length),
            SuppressTokensLogitsProcessor(rules.suppress_tokens),
        ]
        if options.pop("timestamps"):
            processors.append(WhisperTimeStampLogitsProcessor(rules, length))
        if noise is not None:
            processors.insert(0, Noise(noise))
        if "early_stopping" in options:
            options["early_stopping"] = EARLY_STOPPING[options["early_stopping"]]
        end = rules.eos_token_id
        with torch.no_grad():
            output = GenerationMixin.generate(
                self.model,
                inputs=self.features[sound : sound + 1],
                decoder_input_ids=torch.tensor([prompt]),
                generation_config=GenerationConfig(
                    **options,
                    do_sample=False,
                    # As in openai/whisper, probabilities are normalized over the allowed tokens.
                    # With one hypothesis this changes only the scores, which are normalized below.
                    renormalize_logits=options.get("num_beams", 1) > 1,
                    eos_token_id=end,
                    pad_token_id=end,
                    decoder_start_token_id=self.model.config.decoder_start_token_id,
                    return_dict_in_generate=True,
                    output_scores=True,
                ),
                logits_processor=LogitsProcessorList(processors),
            )
        sequences = []
        for index, row in enumerate(output.sequences.tolist()):
            new = row[length:]
            # The end token is also the padding.
            ended = end in new
            token_ids = new[: new.index(end) + 1] if ended else new
            sequence = {"token_ids": token_ids, "finish_reason": "eos" if ended else "length"}
            if options.get("num_beams", 1) > 1:
                sequence["score"] = round(float(output.sequences_scores[index]), 6)
            else:
                # Normalized over the allowed tokens, as Whisper's own `generate` does.
                steps = zip(output.scores, token_ids, strict=True)
                sequence["logprobs"] = [
                    round(float(scores[index].log_softmax(-1)[token]), 6) for scores, token in steps
                ]
            sequences.append(sequence)
        return sequences

    def cases(self) -> Iterator[dict[str, Any]]:
        """The transcripts that rounding cannot change."""
        for name, options in RECIPES.items():
            prompt = self.prompt(timestamps=options["timestamps"])
            count = 0
            for sound in range(SOUNDS):
                sequences = self.generate(sound, prompt, options)
                tokens = [one["token_ids"] for one in sequences]
                noisy = (
                    self.generate(sound, prompt, options, noise=seed) for seed in range(NOISY_RUNS)
                )
                if any([one["token_ids"] for one in run] != tokens for run in noisy):
                    continue
                count += 1
                yield {
                    "name": f"{name} {sound}",
                    "sound": sound,
                    "prompt_token_ids": prompt,
                    "options": options,
                    "sequences": sequences,
                }
            if count < MIN_CASES:
                raise GoldenError(f"{name}: only {count} transcripts are certain")


def expect_whisper(checkpoint: TinyWhisper, parent: Path) -> None:
    """Write what the reference computes and generates of random sounds."""
    reference = Reference(checkpoint, parent)
    model = reference.model
    tokens = torch.from_numpy(reference.random.integers(0, model.config.vocab_size, [1, TOKENS]))
    features = reference.features[:1]
    with torch.no_grad():
        encoded = model.model.encoder(features).last_hidden_state
        output = model(features, decoder_input_ids=tokens, output_attentions=True)
    heads = model.generation_config.alignment_heads
    attentions = torch.stack([output.cross_attentions[layer][0, head] for layer, head in heads])
    arrays = {
        "sounds": torch.from_numpy(reference.sounds),
        "encoded": encoded[0],
        "token_ids": tokens[0].to(torch.int32),
        "logits": output.logits[0],
        "attentions": attentions,
    }
    path = parent / f"{checkpoint.name}.arrays.safetensors"
    save_file({name: array.contiguous() for name, array in arrays.items()}, path)
    path.chmod(0o644)
    records = ",\n".join("  " + json.dumps(case) for case in reference.cases())
    versions = {
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }
    (parent / f"{checkpoint.name}.json").write_text(
        f'{{\n"made_with": {json.dumps(versions)},\n"cases": [\n{records}\n]\n}}\n',
        encoding="utf-8",
    )
