"""`shaperouterd convert`: converts a checkpoint of another layout."""

from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def convert(*, source: Path, target: Path) -> None:
    """Convert a checkpoint to the Hugging Face layout with safetensors.

    SOURCE is a directory with config.json and pytorch_model.bin (one file or shards), or a Whisper
    model of CTranslate2 (faster-whisper) with model.bin, config.json and tokenizer.json. TARGET
    must be empty or not exist; then `--model NAME=TARGET` serves it. The modules of
    sentence-transformers are converted, too. Only tensors are read from pytorch_model.bin; code in
    it is never run. Quantized weights of CTranslate2 become float32.
    """
    # Imported late because it needs packages that only workers have.
    from shaperouter_service.checkpoints.conversion import convert_directory

    try:
        convert_directory(source, target)
    except OSError as error:
        raise click.FileError(str(target), str(error)) from error
    click.echo(f"converted {source} to {target}")
