"""The digest of a model covers every file that its answers may depend on."""

from pathlib import Path

import pytest

from shaperouter_service.checkpoints.digest import READ_SUFFIXES, model_digest

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "1_Pooling").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "name",
    [
        "1_Pooling/config.json",
        "bpe.codes",
        "chat_template.jinja",
        "merges.txt",
        "model.safetensors",
        "sentencepiece.bpe.model",
        "source.spm",
        "target.spm",
        "words.tiktoken",
    ],
)
def test_a_file_that_answers_depend_on_changes_the_digest(model: Path, name: str) -> None:
    digests = [model_digest(model)]
    for content in ("one", "other"):
        (model / name).write_text(content)
        digests.append(model_digest(model))
    assert len(set(digests)) == 3


@pytest.mark.parametrize("name", ["README.md", "pytorch_model.bin", "tf_model.h5"])
def test_a_file_that_nothing_reads_does_not_change_the_digest(model: Path, name: str) -> None:
    before = model_digest(model)
    (model / name).write_text("content")
    assert model_digest(model) == before


def test_the_page_about_models_lists_the_files_that_are_read() -> None:
    page = (DOCS / "models.md").read_text(encoding="utf-8")
    listed = page.partition("The service downloads the files that it reads (")[2].partition(")")[0]
    assert {each.strip().strip("`") for each in listed.split(",")} == set(READ_SUFFIXES)
