"""`shaperouterd convert`: turns a checkpoint of another layout into one that can be served."""

from pathlib import Path

import click


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
def convert(*, source: Path, target: Path) -> None:
    """Turns a Whisper of CTranslate2 (faster-whisper) into the Hugging Face layout.

    SOURCE is its directory, with model.bin, config.json and tokenizer.json. TARGET must not exist,
    or be empty; --model NAME=TARGET then serves it. Quantized weights become float32.
    """
    # Imported late: it needs the packages of workers, which routers do without.
    from shaperouter_service.conversion import convert_directory

    try:
        convert_directory(source, target)
    except OSError as error:
        raise click.FileError(str(target), str(error)) from error
    click.echo(f"converted {source} to {target}")
