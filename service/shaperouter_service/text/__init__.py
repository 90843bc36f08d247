"""Text to tokens and back: tokenizers, and detokenization of a growing sequence."""

from shaperouter_service.text.detokenizer import Detokenizer
from shaperouter_service.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["Detokenizer", "Tokenizer", "load_tokenizer"]
