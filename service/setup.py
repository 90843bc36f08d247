"""Builds the native kernels, where there is a compiler; everything else is in pyproject.toml.

Without one, or without TensorFlow's headers, the distribution is made without them: the service
then leaves products to XLA, and says so.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.egg_info import egg_info
from setuptools.errors import CCompilerError, PlatformError

KERNELS = Path("shaperouter_service/kernels")
LIBRARY = "libshaperouter_kernels.so"
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",
    # A product and a sum are rounded once; the language alone does not allow that.
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
]
LOST = (
    "The service works without the native kernels, but decodes more slowly on a CPU and has no "
    "weights in int8 or int4."
)

# By itself, setuptools leaves build and an egg-info beside the sources, and puts whatever a former
# version of them left in build into the next wheel.
FOLDER = tempfile.TemporaryDirectory(prefix="shaperouter-build-")


class Build(build):
    """Builds in a folder that is removed."""

    def initialize_options(self) -> None:
        """Sets the folder."""
        super().initialize_options()
        self.build_base = FOLDER.name


class EggInfo(egg_info):
    """Writes to the same folder, unless an option names another."""

    def initialize_options(self) -> None:
        """Sets the folder."""
        super().initialize_options()
        self.egg_base = FOLDER.name


class BuildKernels(build_ext):
    """Builds the library, and notes its digest beside it."""

    def run(self) -> None:
        """Builds it, or says why not."""
        try:
            super().run()
        except (CCompilerError, PlatformError, OSError) as error:
            sys.stderr.write(f"{error}\n{LOST} They need a C++17 compiler, such as g++.\n")

    def build_extension(self, ext: Extension) -> None:
        """Builds it."""
        library = Path(self.get_ext_fullpath(ext.name))
        # What a process has loaded must not change under it.
        library.unlink(missing_ok=True)
        super().build_extension(ext)
        digest = hashlib.blake2b(library.read_bytes()).hexdigest()
        _digest(library).write_text(digest + "\n", encoding="ascii")

    def copy_extensions_to_source(self) -> None:
        """For an installation that runs from the sources."""
        super().copy_extensions_to_source()
        for ext in self.extensions:
            built = Path(self.build_lib, self.get_ext_filename(ext.name))
            self.copy_file(str(_digest(built)), str(_digest(KERNELS / LIBRARY)))

    def get_ext_filename(self, fullname: str) -> str:
        """Python does not import it, so its name has no Python version."""
        return str(Path(*fullname.split(".")[:-1], LIBRARY))

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """None that Python would look for."""
        del ext
        return []

    def get_outputs(self) -> list[str]:
        """What a wheel takes along."""
        return [name for path in super().get_outputs() for name in (path, str(_digest(Path(path))))]


class Wheel(bdist_wheel):
    """A wheel for one kind of machine and any Python, as the kernels know nothing of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Its name's tags."""
        python, abi, machine = super().get_tag()
        return (python, abi, machine) if self.root_is_pure else ("py3", "none", machine)


def _digest(library: Path) -> Path:
    return Path(f"{library}.blake2b")


def _kernels() -> list[Extension]:
    # Found without importing it.
    tensorflow = importlib.util.find_spec("tensorflow")
    include = Path(tensorflow.origin).with_name("include") if tensorflow else Path()
    if not (include / "xla/ffi/api/ffi.h").exists():
        sys.stderr.write(f"TensorFlow's headers are missing, so no kernels are built. {LOST}\n")
        return []
    native = KERNELS / "native"
    return [
        Extension(
            "shaperouter_service.kernels.library",
            sorted(map(str, native.glob("*.cc"))),
            depends=[str(path) for pattern in ("*.h", "*.inc") for path in native.glob(pattern)],
            # Treat them as system headers, so that the compiler does not warn about them.
            extra_compile_args=[*FLAGS, "-isystem", str(include)],
            language="c++",
        )
    ]


os.chdir(Path(__file__).parent)
setup(
    cmdclass={
        "build": Build,
        "egg_info": EggInfo,
        "build_ext": BuildKernels,
        "bdist_wheel": Wheel,
    },
    ext_modules=_kernels(),
)
