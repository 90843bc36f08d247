"""Tokenizers, detokenization of growing sequences, and stop texts."""

from shaperouter_service.text.detokenizer import REPLACEMENT, Detokenizer
from shaperouter_service.text.stop_tokens import StopTokens
from shaperouter_service.text.stopping import StopMatcher
from shaperouter_service.text.tokenizer import Tokenizer, load_tokenizer
from shaperouter_service.text.tokenizing import ClientTokenizer, TokenizerThreads
from shaperouter_service.text.vocabulary import Vocabulary

__all__ = [
    "REPLACEMENT",
    "ClientTokenizer",
    "Detokenizer",
    "StopMatcher",
    "StopTokens",
    "Tokenizer",
    "TokenizerThreads",
    "Vocabulary",
    "load_tokenizer",
]
