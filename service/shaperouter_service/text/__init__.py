"""Text to tokens and back: tokenizers, detokenization of a growing sequence, stop strings."""

from shaperouter_service.text.detokenizer import Detokenizer
from shaperouter_service.text.languages import language_names
from shaperouter_service.text.stopping import StopMatcher
from shaperouter_service.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Detokenizer", "StopMatcher", "Tokenizer", "language_names", "load_tokenizer"]
