"""Tokenizers as SentencePiece makes them: a space is part of the word after it."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from shaperouter_service.text import Tokenizer

SPECIAL = ["<pad>", "</s>", "<unk>"]
PIECES = ["▁", "▁a", "a", "b", "▁b", "ab", "▁ab", *(f"<0x{byte:02X}>" for byte in range(256))]
# Writes the last message's content alone.
CHAT_TEMPLATE = "{{ messages[-1]['content'] }}"


def with_byte_fallback(directory: Path) -> Tokenizer:
    """A tokenizer as Llama 2 has it, where bytes stand for characters without a token."""
    vocabulary = {piece: token for token, piece in enumerate([*SPECIAL, *PIECES])}
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary, [("a", "b")], byte_fallback=True, unk_token="<unk>")
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    made.add_special_tokens(SPECIAL)
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(directory)
    return Tokenizer(directory)
