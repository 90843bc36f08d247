"""Whisper (Radford et al. 2022), as in Transformers' `WhisperForConditionalGeneration`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import tensorflow as tf

from shaperouter_service.checkpoints.safetensors_reader import Checkpoint
from shaperouter_service.models.config import Config
from shaperouter_service.models.family import EncoderDecoder
from shaperouter_service.models.layer_loop import (
    Attend,
    AttendWithSource,
    EncoderAttention,
    KeepSource,
    run_layers,
)
from shaperouter_service.models.layers import (
    ACTIVATIONS,
    embedding,
    layer_norm,
    linear,
    merge_heads,
    output_logits,
    split_heads,
)
from shaperouter_service.models.weights import Role, Weights
from shaperouter_service.models.whisper_features import features, log_mel
from shaperouter_service.speech.audio.spectrum import (
    FRAME_SAMPLES,
    HEADER,
    HOP_SAMPLES,
    SAMPLES_AFTER,
    SAMPLES_BEFORE,
)

# Default of PyTorch's `LayerNorm`; no config names another.
LAYER_NORM_EPSILON = 1e-5
# Width of a convolution, and frames that the second convolution merges into one position.
KERNEL = 3
FRAMES_PER_POSITION = 2
# Maximum number of mel bands; with more, some bands would contain no bin of the spectrum.
MAX_MEL_BANDS = FRAME_SAMPLES // 2
# Prefixes of tensor names in checkpoints saved as `WhisperForConditionalGeneration` and as
# `WhisperModel`.
PREFIXES = ("model.", "")
EMBEDDINGS = "decoder.embed_tokens.weight"
HEAD = "proj_out.weight"


@dataclass(frozen=True, kw_only=True)
class Whisper(EncoderDecoder):
    """A Whisper model; attributes have the names of its config.json.

    Attributes:
        vocab_size: V, number of token ids.
        num_mel_bins: M, number of mel bands of the spectrogram.
        d_model: E, width.
        encoder_layers: Number of layers of the encoder.
        encoder_attention_heads: Number of attention heads of the encoder.
        encoder_ffn_dim: Width of the encoder's feed-forward layer.
        decoder_layers: L, number of layers of the decoder.
        decoder_attention_heads: H, number of attention heads of the decoder.
        decoder_ffn_dim: Width of the decoder's feed-forward layer.
        activation_function: Activation of the convolutions and feed-forward layers.
        max_source_positions: S, positions of an encoded window: two frames each.
        max_target_positions: Maximum number of tokens of a transcript, including the prompt.
        tie_word_embeddings: The output projection is the token embedding.
    """

    vocab_size: int
    num_mel_bins: int
    d_model: int
    encoder_layers: int
    encoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_layers: int
    decoder_attention_heads: int
    decoder_ffn_dim: int
    activation_function: str
    max_source_positions: int
    max_target_positions: int
    tie_word_embeddings: bool

    name = "whisper"
    architectures = ("WhisperForConditionalGeneration", "WhisperModel")
    redundant = re.compile(re.escape(HEAD))
    default_eos_token_id = 50256
    default_decoder_start_token_id = 50257
    roles: ClassVar[Mapping[str, Role]] = {
        EMBEDDINGS: Role.VOCABULARY,
        HEAD: Role.VOCABULARY,
        "encoder.embed_positions.weight": Role.UNPACKED,
        "decoder.embed_positions.weight": Role.UNPACKED,
    }
    has_whole_source = True
    has_transcript = True
    # Prompts begin with the text of earlier windows.
    prompt_piece = 32

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        dims = cls(
            vocab_size=config.value("vocab_size", int, 51865),
            num_mel_bins=config.number("num_mel_bins", int, 80, at_least=1, at_most=MAX_MEL_BANDS),
            d_model=config.value("d_model", int, 384),
            encoder_layers=config.value("encoder_layers", int, 4),
            encoder_attention_heads=config.value("encoder_attention_heads", int, 6),
            encoder_ffn_dim=config.value("encoder_ffn_dim", int, 1536),
            decoder_layers=config.value("decoder_layers", int, 4),
            decoder_attention_heads=config.value("decoder_attention_heads", int, 6),
            decoder_ffn_dim=config.value("decoder_ffn_dim", int, 1536),
            activation_function=config.choice("activation_function", "gelu", ACTIVATIONS),
            max_source_positions=config.value("max_source_positions", int, 1500),
            max_target_positions=config.value("max_target_positions", int, 448),
            tie_word_embeddings=config.value("tie_word_embeddings", bool, True),
        )
        for part in ("encoder", "decoder"):
            heads = getattr(dims, f"{part}_attention_heads")
            if dims.d_model % heads:
                raise config.error(
                    f"d_model must be a multiple of {part}_attention_heads, got {dims.d_model} "
                    f"and {heads}"
                )
        return dims

    @property
    def longest(self) -> int:
        return self.max_target_positions

    @property
    def max_source_length(self) -> int:
        return self.max_source_positions

    @property
    def window_samples(self) -> int:
        """Samples of a window at 16 kHz; 30 s for all published models."""
        return self.max_source_positions * FRAMES_PER_POSITION * HOP_SAMPLES

    @property
    def layers(self) -> int:
        return self.decoder_layers

    @property
    def heads(self) -> int:
        return self.decoder_attention_heads

    @property
    def head_size(self) -> int:
        return self.d_model // self.decoder_attention_heads

    @property
    def stacks(self) -> Mapping[str, int]:
        return {"encoder.layers": self.encoder_layers, "decoder.layers": self.decoder_layers}

    def read_weights(
        self, checkpoint: Checkpoint, dtype: np.dtype[Any]
    ) -> Iterator[tuple[str, np.ndarray]]:
        prefix = next(
            (prefix for prefix in PREFIXES if prefix + EMBEDDINGS in checkpoint.names), PREFIXES[0]
        )
        width = self.d_model

        def read(name: str, *shape: int, transposed: bool = False) -> tuple[str, np.ndarray]:
            return name, checkpoint.read(
                prefix + name, shape=shape, dtype=dtype, transposed=transposed
            )

        def read_linear(
            name: str, inputs: int, outputs: int, *, bias: bool = True
        ) -> Iterator[tuple[str, np.ndarray]]:
            # Transposed to [I, O], with which XLA on CPU computes long inputs a little faster.
            yield read(f"{name}.weight", outputs, inputs, transposed=True)
            if bias:
                yield read(f"{name}.bias", outputs)

        def read_convolution(name: str, inputs: int) -> Iterator[tuple[str, np.ndarray]]:
            # From [O, I, KERNEL] to [KERNEL * I, O], which `linear` multiplies adjacent inputs by.
            _, weight = read(f"{name}.weight", width, inputs, KERNEL, transposed=True)
            yield f"{name}.weight", weight.reshape([KERNEL * inputs, width])
            yield read(f"{name}.bias", width)

        def read_norm(name: str) -> Iterator[tuple[str, np.ndarray]]:
            yield read(f"{name}.weight", width)
            yield read(f"{name}.bias", width)

        yield from read_convolution("encoder.conv1", self.num_mel_bins)
        yield from read_convolution("encoder.conv2", width)
        yield read(EMBEDDINGS, self.vocab_size, width)
        if not self.tie_word_embeddings:
            yield HEAD, checkpoint.read(HEAD, shape=(self.vocab_size, width), dtype=dtype)
        for part, layers, inner, positions, attentions in (
            (
                "encoder",
                self.encoder_layers,
                self.encoder_ffn_dim,
                self.max_source_positions,
                ["self_attn"],
            ),
            (
                "decoder",
                self.decoder_layers,
                self.decoder_ffn_dim,
                self.max_target_positions,
                ["self_attn", "encoder_attn"],
            ),
        ):
            yield read(f"{part}.embed_positions.weight", positions, width)
            yield from read_norm(f"{part}.layer_norm")
            for layer in range(layers):
                h = f"{part}.layers.{layer}"
                for attn in attentions:
                    for name in ("q_proj", "v_proj", "out_proj"):
                        yield from read_linear(f"{h}.{attn}.{name}", width, width)
                    yield from read_linear(f"{h}.{attn}.k_proj", width, width, bias=False)
                    yield from read_norm(f"{h}.{attn}_layer_norm")
                yield from read_linear(f"{h}.fc1", width, inner)
                yield from read_linear(f"{h}.fc2", inner, width)
                yield from read_norm(f"{h}.final_layer_norm")

    def is_of_encoder(self, weight: str) -> bool:
        keys_and_values = ("encoder_attn.k_proj", "encoder_attn.v_proj")
        return weight.startswith("encoder.") or weight.rpartition(".")[0].endswith(keys_and_values)

    def source_spec(self, rows: int, length: int) -> tf.TensorSpec:
        samples = length * FRAMES_PER_POSITION * HOP_SAMPLES
        numbers = HEADER + SAMPLES_BEFORE + samples + SAMPLES_AFTER
        return tf.TensorSpec([rows, numbers], tf.float32)

    def encode(
        self, weights: Weights, source: tf.Tensor, lengths: tf.Tensor, keep: KeepSource
    ) -> None:
        del lengths  # Silence is encoded like any other sound.

        def keys_and_values(weights: Weights, x: tf.Tensor, keep: KeepSource) -> tf.Tensor:
            key, value = (
                split_heads(linear(weights, f"encoder_attn.{part}_proj", x), self.heads)
                for part in "kv"
            )
            keep(key, value)
            return x

        x = self.encode_audio(weights, source)
        run_layers(weights, "decoder.layers", keys_and_values, x, keep, layers=self.layers)

    def encode_audio(self, weights: Weights, source: tf.Tensor) -> tf.Tensor:
        """Runs the encoder.

        Args:
            weights: As named by `read_weights`.
            source: Shaped as `source_spec` says; each row is made by `audio.spectrum.source`.

        Returns:
            Hidden states after the last norm, [R, S, E], of the weights' type.
        """
        activation = self.activation_function
        spectrogram = features(
            log_mel(source[:, HEADER:], self.num_mel_bins),
            peak=source[:, 0],
            frames=tf.cast(source[:, 1], tf.int32),
        )
        x = tf.cast(spectrogram, weights["encoder.conv1.bias"].dtype)
        x = _convolution(weights, "encoder.conv1", x, activation, stride=1)
        x = _convolution(weights, "encoder.conv2", x, activation, stride=FRAMES_PER_POSITION)
        x += weights["encoder.embed_positions.weight"][: x.shape[1]]

        def block(weights: Weights, x: tf.Tensor, attend: Attend) -> tf.Tensor:
            x = _self_attention(weights, x, attend, self.encoder_attention_heads)
            return self._feed_forward(weights, x)

        attend = EncoderAttention(tf.ones([1, 1, 1, 1], tf.bool))
        x = run_layers(weights, "encoder.layers", block, x, attend, layers=self.encoder_layers)
        return _norm(weights, "encoder.layer_norm", x)

    def forward(
        self,
        weights: Weights,
        token_ids: tf.Tensor,
        positions: tf.Tensor,
        attend: AttendWithSource,  # type: ignore[override]  # see EncoderDecoder
    ) -> tf.Tensor:
        def block(weights: Weights, x: tf.Tensor, attend: AttendWithSource) -> tf.Tensor:
            x = _self_attention(weights, x, attend, self.heads)
            normed = _norm(weights, "encoder_attn_layer_norm", x)
            query = linear(weights, "encoder_attn.q_proj", normed)
            context = attend.to_source(split_heads(query, self.heads), self.head_size**-0.5)
            x += linear(weights, "encoder_attn.out_proj", merge_heads(context))
            return self._feed_forward(weights, x)

        x = embedding(weights, EMBEDDINGS, token_ids)
        x += tf.gather(weights["decoder.embed_positions.weight"], positions)
        x = run_layers(weights, "decoder.layers", block, x, attend, layers=self.layers)
        return _norm(weights, "decoder.layer_norm", x)

    def logits(self, weights: Weights, hidden: tf.Tensor) -> tf.Tensor:
        return output_logits(weights, EMBEDDINGS if self.tie_word_embeddings else HEAD, hidden)

    def _feed_forward(self, weights: Weights, x: tf.Tensor) -> tf.Tensor:
        normed = _norm(weights, "final_layer_norm", x)
        inner = linear(weights, "fc1", normed, self.activation_function)
        return x + linear(weights, "fc2", inner)


def _self_attention(weights: Weights, x: tf.Tensor, attend: Attend, heads: int) -> tf.Tensor:
    normed = _norm(weights, "self_attn_layer_norm", x)
    query, key, value = (
        split_heads(linear(weights, f"self_attn.{part}_proj", normed), heads) for part in "qkv"
    )
    context = attend(query, key, value, query.shape[-1] ** -0.5)
    return x + linear(weights, "self_attn.out_proj", merge_heads(context))


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


def _norm(weights: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    return layer_norm(weights, name, x, LAYER_NORM_EPSILON)
