"""What sentence-transformers' files say about a text encoder: its modules, limits and prompts.

The library writes them beside a checkpoint in the Hugging Face layout: `modules.json` lists what
follows the encoder, and each module has a folder with its own config.json. A directory without
them is a plain checkpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from shaperouter_service.checkpoints.model_files import read_json, read_json_list
from shaperouter_service.errors import StartupError

MODULES = "modules.json"
# Settings of the encoder's module, in the module's folder. Old models have names of their own for
# it.
ENCODER_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_mpnet_config.json",
)
LIBRARY_CONFIG = "config_sentence_transformers.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
# Modules that compute nothing useful without their settings: an embedder that pools by the first
# token would silently answer with the mean of all.
CONFIGURED = ("Pooling", "Dense")
# Tokenizers without a limit set one of about 1e30.
UNLIMITED = 10**9


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module that follows the encoder.

    Attributes:
        kind: Name of its class, without the package, e.g. `Pooling`.
        directory: Its folder.
        config: The content of the config.json there; empty without that file.
    """

    kind: str
    directory: Path
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SentenceTransformer:
    """The content of sentence-transformers' files in a directory.

    Attributes:
        modules: What follows the encoder; None without modules.json.
        max_length: Maximum number of tokens of a text, or of a pair of texts; None without a limit.
        prompt: Text that is put before each text that is embedded; may be empty.
        lowercases: Whether texts become lowercase before they are tokenized.
        activation: Name of the class that turns logits into scores, as in PyTorch; None if the
            files name none.
    """

    modules: Sequence[Module] | None
    max_length: int | None
    prompt: str
    lowercases: bool
    activation: str | None


def read_sentence_transformer(directory: Path) -> SentenceTransformer:
    """Reads the files in a model's directory; all of them may be missing.

    Raises:
        StartupError: A file is damaged or has an unusable value.
    """
    encoder = _optional_json(directory, *ENCODER_CONFIGS)
    library = _optional_json(directory, LIBRARY_CONFIG)
    tokenizer = _optional_json(directory, TOKENIZER_CONFIG)
    max_length = _limit(directory, "max_seq_length", encoder)
    if max_length is None:
        max_length = _limit(directory, "model_max_length", tokenizer)
    task = encoder.get("transformer_task")
    if task not in (None, "feature-extraction", "sequence-classification"):
        raise StartupError(
            f"{directory}: transformer_task must be feature-extraction or "
            f"sequence-classification, got {task!r}"
        )
    lowercases = encoder.get("do_lower_case") or False
    if not isinstance(lowercases, bool):
        raise StartupError(f"{directory}: do_lower_case must be true or false, got {lowercases!r}")
    activation = library.get("activation_fn")
    return SentenceTransformer(
        modules=read_modules(directory) if (directory / MODULES).exists() else None,
        max_length=max_length,
        prompt=_default_prompt(directory / LIBRARY_CONFIG, library),
        lowercases=lowercases,
        activation=None if activation is None else str(activation),
    )


def _default_prompt(path: Path, library: Mapping[str, Any]) -> str:
    """The prompt that the library uses unless a caller names another one."""
    prompts = library.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(each, str) for each in prompts.values()):
        raise StartupError(f"{path}: prompts must be texts by name")
    name = library.get("default_prompt_name")
    if name is None:
        return ""
    # Compared with a list, because the name may be anything, also without a hash.
    if name not in list(prompts):
        raise StartupError(f"{path}: default_prompt_name must be one of the prompts, got {name!r}")
    prompt: str = prompts[name]
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise StartupError(f"{path}: prompts must be Unicode texts, got {prompt!r}") from error
    return prompt


def read_modules(directory: Path) -> list[Module]:
    """Reads the modules after the encoder, which comes first, from modules.json.

    Their folders are below the model's directory; some may be missing.

    Raises:
        StartupError: The list is damaged, a folder is outside the directory, or a module lacks a
            config.json that it needs.
    """
    path = directory / MODULES
    listed = read_json_list(path)
    if not listed or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str) for each in listed
    ):
        raise StartupError(f"{path}: must be a list of modules, each with a type")
    encoder, *others = ((_kind(each), _folder(path, each)) for each in listed)
    if encoder != ("Transformer", ""):
        raise StartupError(
            f"{path}: the first module must be a Transformer in the model's own directory, got "
            f"{encoder[0]} in {encoder[1]!r}"
        )
    modules = []
    for kind, folder in others:
        of_module = directory / folder
        config = of_module / "config.json"
        try:
            # The one in the model's own directory is that of the encoder.
            has_config = of_module != directory and config.exists()
        except OSError as error:
            raise StartupError(f"{path}: path {folder!r}: {error.strerror}") from error
        if kind in CONFIGURED and not has_config:
            raise StartupError(f"{path}: {kind} in folder {folder!r} must have a config.json there")
        values = read_json(config) if has_config else {}
        modules.append(Module(kind=kind, directory=of_module, config=values))
    return modules


def _kind(module: Mapping[str, Any]) -> str:
    # Packages were moved between releases, classes were not renamed.
    return str(module["type"]).rpartition(".")[2]


def _folder(path: Path, module: Mapping[str, Any]) -> str:
    folder = str(module.get("path", ""))
    parts = PurePosixPath(folder).parts
    if PurePosixPath(folder).is_absolute() or ".." in parts:
        raise StartupError(f"{path}: module {folder!r} is outside the directory")
    return folder


def _optional_json(directory: Path, *names: str) -> dict[str, Any]:
    """The content of the first of these files that exists; empty if there is none."""
    found = next((directory / name for name in names if (directory / name).exists()), None)
    return {} if found is None else read_json(found)


def _limit(directory: Path, key: str, values: Mapping[str, Any]) -> int | None:
    limit = values.get(key)
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not limit >= 1:
        raise StartupError(f"{directory}: {key} must be a positive number, got {limit!r}")
    return None if limit >= UNLIMITED else int(limit)
