"""The model's tokens: characters of words as input, phonemes as output.

Both are in one vocabulary, as T5 requires. They cannot be mixed up: text is put into lower case
before it is looked up, and phonemes are written in capitals, so no text is read as phonemes.
"""

from __future__ import annotations

import string

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

PAD, EOS, UNKNOWN = SPECIAL = ("<pad>", "</s>", "<unk>")  # with T5's ids: 0, 1 and 2
CHARACTERS = tuple("'-." + string.ascii_lowercase)  # all characters of the dictionary's words
PHONEMES = (
    *("AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH"),
    *("IH", "IY", "JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH"),
    *("UH", "UW", "V", "W", "Y", "Z", "ZH"),
)
"""ARPAbet, as the dictionary writes it, without stress."""

VOCABULARY = {token: number for number, token in enumerate(SPECIAL + CHARACTERS + PHONEMES)}
PAD_ID, EOS_ID, UNKNOWN_ID = (VOCABULARY[token] for token in SPECIAL)


def new_tokenizer(model_max_length: int) -> PreTrainedTokenizerFast:
    """The tokenizer as Transformers saves and loads it.

    Capitals and accents do not matter ("Café" is "cafe"); any other character that no word of the
    dictionary has, a space among them, is `<unk>`. Decoding puts a space between phonemes.
    """
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, EOS_ID)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        model_max_length=model_max_length,
        clean_up_tokenization_spaces=False,
    )
