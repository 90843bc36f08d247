"""CTranslate2 behind gRPC with a model that has an encoder, set up like `load.server_ctranslate2`.

Sources of any lengths share a batch, because they are padded and not read token by token.
"""

from collections.abc import Sequence
from typing import Any

import ctranslate2
from load.server import serve
from load.server_ctranslate2 import CTranslate2Server, load
from t5.peer_ctranslate2 import word_ids


class TranslatorServer(CTranslate2Server):
    """A translator, which takes sources as a generator takes prompts."""

    library = ctranslate2.Translator
    length_spread = 2**31

    def call(self, prompts: list[list[str]], limit: int, **options: Any) -> Sequence[Sequence[int]]:
        results = self._model.translate_batch(prompts, max_decoding_length=limit, **options)
        return [word_ids(result.hypotheses[0]) for result in results]


if __name__ == "__main__":
    serve(load(TranslatorServer))
