"""The demo model's own byte-level BPE, trained on the training split only.

Byte-level as in GPT-2 (Radford et al., 2019), so any text can be encoded and no token stands for
"unknown"; 8,192 tokens instead of 50,257, because in a model this small a large embedding table
would eat both the parameters and the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 8192  # tokens, the special one included
END_OF_TEXT = "<|endoftext|>"  # between documents: begins, ends and pads, as in GPT-2
END_OF_TEXT_ID = 0  # special tokens come first


def train_tokenizer(documents: Iterable[str], n_positions: int) -> PreTrainedTokenizerFast:
    """Trains the BPE on documents and wraps it as Transformers saves and loads it."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(documents, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        unk_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        model_max_length=n_positions,
        clean_up_tokenization_spaces=False,
    )
