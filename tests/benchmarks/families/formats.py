"""The formats that contestants load a checkpoint in, and their converters."""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from common.paths import LOGS, PYTHON_PATH, WORK, environment_python
from common.processes import PeerError

from .checkpoint import Shape, make_checkpoint


class Format(StrEnum):
    """A format; its value ends the name of the folder or file."""

    HUGGING_FACE = "hf"
    CTRANSLATE2 = "ctranslate2"
    GGUF_F32 = "F32.gguf"
    GGUF_BF16 = "BF16.gguf"
    GGUF_Q8 = "Q8_0.gguf"
    GGUF_Q4 = "Q4_0-Q6_K.gguf"
    OPENVINO_F32 = "openvino-fp32"
    OPENVINO_INT8 = "openvino-int8"
    OPENVINO_INT4 = "openvino-int4"


def path_of(shape: Shape, kind: Format) -> Path:
    """The path of a checkpoint in a format."""
    match kind:
        case Format.HUGGING_FACE:
            return shape.checkpoint
        case Format.CTRANSLATE2:
            return shape.converted
        case _:
            return WORK / f"{shape.name}-{kind}"


def prepare(shape: Shape, kind: Format) -> None:
    """Writes a checkpoint in a format, unless it exists.

    Raises:
        PeerError: A converter fails; its output is in the logs.
    """
    make_checkpoint(shape)
    path = path_of(shape, kind)
    if path.exists():
        return
    unfinished = path.with_name(f"unfinished-{path.name}")
    environment, command = _COMMANDS[kind](shape.checkpoint, unfinished)
    python = environment_python(environment)
    if not python.exists():
        raise PeerError(f"{environment} is missing; make bench-families makes it")
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"families-{path.name}.log"
    with log.open("w", encoding="utf-8") as output:
        status = subprocess.run(
            [python.with_name(command[0]), *command[1:]],
            env={"PYTHONPATH": PYTHON_PATH, "PATH": f"{python.parent}:/usr/bin:/bin"},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if status:
        raise PeerError(f"the converter to {path.name} failed; see {log}")
    unfinished.rename(path)


# A converter's environment and command line.
_Command = tuple[str, Sequence[str]]


def _ctranslate2(checkpoint: Path, output: Path) -> _Command:
    return ".venvs/bench-torch", [
        "ct2-transformers-converter",
        "--force",
        "--quantization=float32",
        f"--model={checkpoint}",
        f"--output_dir={output}",
    ]


def _gguf(kind: str) -> Callable[[Path, Path], _Command]:
    module = f"{__package__}.gguf_checkpoint"
    return lambda checkpoint, output: (
        ".venvs/bench-llamacpp",
        ["python", "-m", module, str(checkpoint), str(output), kind],
    )


def _gguf_q4(checkpoint: Path, output: Path) -> _Command:
    return ".venvs/bench-llamacpp", [
        "python",
        "-m",
        f"{__package__}.gguf_rounding",
        str(checkpoint),
        str(output),
    ]


def _openvino(kind: str, *options: str) -> Callable[[Path, Path], _Command]:
    return lambda checkpoint, output: (
        ".venvs/bench-openvino",
        [
            "optimum-cli",
            "export",
            "openvino",
            "--task=text-generation-with-past",
            f"--weight-format={kind}",
            *options,
            f"--model={checkpoint}",
            str(output),
        ],
    )


_COMMANDS: Mapping[Format, Callable[[Path, Path], _Command]] = {
    Format.CTRANSLATE2: _ctranslate2,
    Format.GGUF_F32: _gguf("F32"),
    Format.GGUF_BF16: _gguf("BF16"),
    Format.GGUF_Q8: _gguf("Q8_0"),
    Format.GGUF_Q4: _gguf_q4,
    Format.OPENVINO_F32: _openvino("fp32"),
    Format.OPENVINO_INT8: _openvino("int8"),
    # All matrices of layers, symmetric like those of llama.cpp's Q4_0; embeddings are in 8 bits.
    Format.OPENVINO_INT4: _openvino("int4", "--sym", "--group-size=128", "--ratio=1.0"),
}
