"""Converting a directory."""

import json
import shutil
import tempfile
from pathlib import Path

from safetensors.numpy import save_file

from shaperouter_service.conversion import whisper
from shaperouter_service.conversion.ctranslate2 import read_weights
from shaperouter_service.conversion.special_tokens import SpecialTokens
from shaperouter_service.errors import StartupError
from shaperouter_service.json_files import read_json

WEIGHTS = "model.bin"
TOKENIZER = "tokenizer.json"


def convert_directory(source: Path, target: Path) -> None:
    """Turns a directory of a CTranslate2 Whisper into one in the Hugging Face layout.

    Types of weights stay as they are, but for integers and bfloat16, which become float32. The
    target appears when it is complete, or not at all.

    Args:
        source: Has model.bin, config.json and tokenizer.json.
        target: Must not exist, or be empty.

    Raises:
        StartupError: A file is missing, damaged or of another model, or the target is not empty.
        OSError: The target cannot be written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StartupError(f"{target}: must not exist, or be an empty directory")
    if not (source / TOKENIZER).is_file():
        raise StartupError(
            f"{source}: has no {TOKENIZER}; copy it from the checkpoint that was converted to "
            "CTranslate2"
        )
    weights = read_weights(source / WEIGHTS)
    whisper.check_layout(weights)
    special = SpecialTokens.read(source / TOKENIZER)
    contents = {
        "config.json": whisper.config(weights, special),
        "generation_config.json": whisper.generation_config(
            weights, special, read_json(source / "config.json")
        ),
        "preprocessor_config.json": whisper.preprocessor_config(weights),
        "tokenizer_config.json": whisper.tokenizer_config(special),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as folder:
        made = Path(folder) / "made"
        made.mkdir()
        for name, content in contents.items():
            (made / name).write_text(
                json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8"
            )
        shutil.copyfile(source / TOKENIZER, made / TOKENIZER)
        file = made / "model.safetensors"
        save_file(dict(whisper.tensors(weights)), file, metadata={"format": "pt"})
        # It was made for its owner alone, unlike the others.
        file.chmod((made / TOKENIZER).stat().st_mode)
        made.rename(target)
