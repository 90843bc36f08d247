"""RoBERTa (Liu et al. 2019) and XLM-RoBERTa (Conneau et al. 2019), as in Transformers."""

from dataclasses import dataclass
from typing import Self

import tensorflow as tf

from shaperouter_service.models.config import Config
from shaperouter_service.models.encoders.bert import EPSILON, Bert
from shaperouter_service.models.encoders.text_encoder import read_dimensions
from shaperouter_service.models.encoders.tokens import Tokens
from shaperouter_service.models.layers import positions_after


@dataclass(frozen=True, kw_only=True)
class Roberta(Bert):
    """A RoBERTa: a BERT that counts positions differently, with another classifier.

    Attributes:
        pad_token_id: Token that has no position. The first other one has the position after this
            number.
    """

    pad_token_id: int

    name = "roberta"
    class_prefix = "Roberta"
    prefix = "roberta"
    classifier = (("classifier.dense", "tanh"), ("classifier.out_proj", None))

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Reads the dimensions; missing values default as in Transformers."""
        dimensions = read_dimensions(config)
        dimensions["vocab_size"] = config.value("vocab_size", int, cls._default_vocab_size())
        positions = dimensions["num_positions"]
        return cls(
            **dimensions,
            epsilon=config.value("layer_norm_eps", float, EPSILON),
            num_types=config.value("type_vocab_size", int, 2),
            pad_token_id=config.number("pad_token_id", int, 1, at_least=0, at_most=positions - 2),
        )

    @classmethod
    def _default_vocab_size(cls) -> int:
        return 50265

    @property
    def max_length(self) -> int:
        return self.num_positions - self.pad_token_id - 1

    def positions(self, tokens: Tokens, token_ids: tf.Tensor) -> tf.Tensor:
        del tokens
        return positions_after(self.pad_token_id, token_ids)


@dataclass(frozen=True, kw_only=True)
class XlmRoberta(Roberta):
    """An XLM-RoBERTa: a RoBERTa with a vocabulary of many languages."""

    name = "xlm-roberta"
    class_prefix = "XLMRoberta"

    @classmethod
    def _default_vocab_size(cls) -> int:
        return 30522
