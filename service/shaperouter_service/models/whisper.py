"""Whisper (Radford et al. 2022), as in Transformers' `WhisperForConditionalGeneration`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import tensorflow as tf

from shaperouter_service.models.config import Config
from shaperouter_service.models.layers import linear
from shaperouter_service.models.seq2seq import (
    EMBEDDINGS,
    HEADS,
    POSITIONS,
    NamedWeight,
    Seq2Seq,
    Tensors,
)
from shaperouter_service.models.weights import Weights
from shaperouter_service.models.whisper_features import features, log_mel
from shaperouter_service.speech.audio.spectrum import (
    FRAME_SAMPLES,
    HEADER,
    HOP_SAMPLES,
    SAMPLES_AFTER,
    SAMPLES_BEFORE,
)

# Width of a convolution, and frames that the second convolution merges into one position.
KERNEL = 3
FRAMES_PER_POSITION = 2
# Maximum number of mel bands; with more, some bands would contain no bin of the spectrum.
MAX_MEL_BANDS = FRAME_SAMPLES // 2


@dataclass(frozen=True, kw_only=True)
class Whisper(Seq2Seq):
    """A Whisper model; attributes have the names of its config.json.

    Attributes:
        num_mel_bins: M, number of mel bands of the spectrogram.
        max_source_positions: S, positions of an encoded window: two frames each.
        max_target_positions: Maximum number of tokens of a transcript, including the prompt.
    """

    num_mel_bins: int
    max_source_positions: int
    max_target_positions: int

    name = "whisper"
    architectures = ("WhisperForConditionalGeneration", "WhisperModel")
    other_names: ClassVar[Mapping[str, str]] = {
        **Seq2Seq.other_names,
        "num_key_value_heads": "encoder_attention_heads",
    }
    redundant = re.compile(re.escape(HEADS[1]))
    default_eos_token_id = 50256
    default_decoder_start_token_id = 50257
    has_whole_source = True
    has_transcript = True
    # Prompts begin with the text of earlier windows.
    prompt_piece = 32
    norms_before = True
    norms_embeddings = False
    has_key_biases = False
    head = HEADS[1]
    defaults: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 51865,
        "d_model": 384,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "decoder_layers": 4,
        "decoder_attention_heads": 6,
        "decoder_ffn_dim": 1536,
        "activation_function": "gelu",
    }

    @classmethod
    def own_values(cls, config: Config) -> Mapping[str, Any]:
        return {
            "num_mel_bins": config.number(
                "num_mel_bins", int, 80, at_least=1, at_most=MAX_MEL_BANDS
            ),
            "max_source_positions": config.value("max_source_positions", int, 1500),
            "max_target_positions": config.value("max_target_positions", int, 448),
        }

    @property
    def longest(self) -> int:
        return self.max_target_positions

    @property
    def max_source_length(self) -> int:
        return self.max_source_positions

    def read_inputs(self, tensors: Tensors) -> Iterator[NamedWeight]:
        width = self.d_model
        for name, inputs in (("encoder.conv1", self.num_mel_bins), ("encoder.conv2", width)):
            # From [O, I, KERNEL] to [KERNEL * I, O], which `linear` multiplies adjacent inputs by.
            _, weight = tensors.read(f"{name}.weight", width, inputs, KERNEL, transposed=True)
            yield f"{name}.weight", weight.reshape([KERNEL * inputs, width])
            yield tensors.read(f"{name}.bias", width)
        yield tensors.read(EMBEDDINGS, self.vocab_size, width)
        lengths = (self.max_source_positions, self.max_target_positions)
        for name, positions in zip(POSITIONS, lengths, strict=True):
            yield tensors.read(name, positions, width)

    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        samples = length * FRAMES_PER_POSITION * HOP_SAMPLES
        numbers = HEADER + SAMPLES_BEFORE + samples + SAMPLES_AFTER
        return tf.TensorSpec([rows, numbers], tf.float32)

    def encode_source(self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        del lengths  # Silence is encoded like any other sound.
        activation = self.activation_function
        spectrogram = features(
            log_mel(source[:, HEADER:], self.num_mel_bins),
            peak=source[:, 0],
            frames=tf.cast(source[:, 1], tf.int32),
        )
        x = tf.cast(spectrogram, weights["encoder.conv1.bias"].dtype)
        x = _convolution(weights, "encoder.conv1", x, activation, stride=1)
        x = _convolution(weights, "encoder.conv2", x, activation, stride=FRAMES_PER_POSITION)
        x += weights[POSITIONS[0]][: x.shape[1]]
        return self.run_encoder(weights, x, visible=tf.ones([1, 1, 1, 1], tf.bool))


def _convolution(
    weights: Weights, name: str, x: tf.Tensor, activation: str, *, stride: int
) -> tf.Tensor:
    """Convolves [R, F, I] along F, padded by one at both ends, and activates: [R, F / stride, O].

    It uses a matrix product, which XLA computes faster than a convolution on a CPU.
    """
    count = x.shape[1] // stride
    padded = tf.pad(x, [[0, 0], [1, 1], [0, 0]])
    inputs = [padded[:, start : start + stride * count : stride] for start in range(KERNEL)]
    return linear(weights, name, tf.concat(inputs, axis=-1), activation)
