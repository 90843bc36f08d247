"""Checks whether a model can propose tokens for another one."""

from collections.abc import Mapping
from pathlib import Path

from shaperouter_service.errors import StartupError
from shaperouter_service.models import Checkpoint, Family, read_draft
from shaperouter_service.text import Tokenizer, load_tokenizer


def check_no_draft(model: str, drafts: Mapping[str, Path], kind: str) -> None:
    """Checks that a model that does not generate tokens has no draft model.

    Args:
        model: Name of the model.
        drafts: The draft models, by the names of the models that they propose for.
        kind: What the model is.

    Raises:
        StartupError: It has one.
    """
    if model in drafts:
        raise StartupError(
            f"draft of model {model}: needs a model that generates tokens, but this is a {kind}"
        )


def check_draft(
    model: str, checkpoint: Checkpoint, family: Family, draft: Path, *, packed: bool
) -> tuple[Checkpoint, Family]:
    """Checks a draft model without reading its weights.

    Args:
        model: Name of the model that it proposes for.
        checkpoint: That model's checkpoint.
        family: That model.
        draft: Directory of the draft model.
        packed: Whether the native kernels compute with the weights.

    Returns:
        Its checkpoint, opened with `only_headers`, and its family.

    Raises:
        StartupError: It cannot be loaded, cannot propose for the model, or has another vocabulary.
    """
    if not packed:
        raise StartupError(
            f"draft of model {model}: needs the native kernels of a CPU, which are not in use here"
        )
    of_draft = Checkpoint(draft, only_headers=True)
    draft_family = read_draft(of_draft, model, family)
    _check_same_tokens(model, checkpoint.directory, draft)
    return of_draft, draft_family


def _check_same_tokens(model: str, directory: Path, draft: Path) -> None:
    """Checks that a model and its draft model have the same vocabulary.

    Checkpoints without a tokenizer, which only token ids can be sent to, have nothing to compare.

    Args:
        model: Name of the model.
        directory: Its directory.
        draft: Directory of its draft model.

    Raises:
        StartupError: The vocabularies differ, or only one of them has a tokenizer.
    """
    ours, theirs = load_tokenizer(directory), load_tokenizer(draft)
    if ours is None and theirs is None:
        return
    tokens, others = _ids(ours), _ids(theirs)
    if tokens == others:
        return
    differing = {token for token, _ in tokens.items() ^ others.items()}
    example = min(differing)
    raise StartupError(
        f"draft of model {model}: must have the model's vocabulary, but {len(differing)} tokens "
        f"differ, such as {example!r}: {_said(directory, ours, tokens, example)}; "
        f"{_said(draft, theirs, others, example)}"
    )


def _ids(tokenizer: Tokenizer | None) -> Mapping[str, int]:
    return {} if tokenizer is None else tokenizer.token_ids


def _said(
    directory: Path, tokenizer: Tokenizer | None, tokens: Mapping[str, int], example: str
) -> str:
    """What a vocabulary says of a token."""
    if tokenizer is None:
        return f"{directory} has no tokenizer"
    token = f"id {tokens[example]}" if example in tokens else "no such token"
    return f"{directory} ({tokenizer.name}, {len(tokens)} tokens) has {token}"
