"""Tokenizers, incremental detokenization, and stop strings."""

from shaperouter_service.text.chat_adaptation import ChatTemplateError
from shaperouter_service.text.constrained_requests import constraint_violations
from shaperouter_service.text.constraints import CONSTRAINTS, ConstraintError
from shaperouter_service.text.detokenizer import REPLACEMENT, Detokenizer, context_of
from shaperouter_service.text.search_stops import search_stop_violations
from shaperouter_service.text.stop_matcher import StopMatcher
from shaperouter_service.text.stop_tokens import StopTokens
from shaperouter_service.text.text_encoding import EncodedText
from shaperouter_service.text.token_masks import ConstrainedVocabulary, Constraint
from shaperouter_service.text.tokenizer import Tokenizer, load_tokenizer
from shaperouter_service.text.tokenizer_threads import ClientTokenizer, TokenizerThreads
from shaperouter_service.text.tool_call_grammar import tool_call_grammar
from shaperouter_service.text.vocabulary import Vocabulary

__all__ = [
    "CONSTRAINTS",
    "REPLACEMENT",
    "ChatTemplateError",
    "ClientTokenizer",
    "ConstrainedVocabulary",
    "Constraint",
    "ConstraintError",
    "Detokenizer",
    "EncodedText",
    "StopMatcher",
    "StopTokens",
    "Tokenizer",
    "TokenizerThreads",
    "Vocabulary",
    "constraint_violations",
    "context_of",
    "load_tokenizer",
    "search_stop_violations",
    "tool_call_grammar",
]
