"""The exports of the distribution, and modules that it must not import."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import shaperouter
from shaperouter.v1 import generation_pb2_grpc

CHECKOUT = Path(__file__).parents[3]


def test_import_is_light() -> None:
    code = (
        "import sys, shaperouter, shaperouter._cli\n"
        "print(sorted({m.partition('.')[0] for m in sys.modules}"
        " & {'tensorflow', 'transformers', 'numpy', 'torch', 'keras'}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_importing_the_library_does_not_import_the_command() -> None:
    code = "import sys, shaperouter; print('click' in sys.modules, 'rich' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["False", "False"]


def test_both_packages_ask_for_a_grpc_that_the_stubs_accept() -> None:
    for package in ("client", "service"):
        with (CHECKOUT / package / "pyproject.toml").open("rb") as file:
            dependencies = tomllib.load(file)["project"]["dependencies"]
        (bound,) = (each for each in dependencies if re.match(r"grpcio>", each))
        assert bound == f"grpcio>={generation_pb2_grpc.GRPC_GENERATED_VERSION}"


def test_all_lists_exactly_the_public_names() -> None:
    public = {
        name
        for name, value in vars(shaperouter).items()
        if not name.startswith("_") and not isinstance(value, type(sys))
    }
    assert set(shaperouter.__all__) == public | {"__version__"}
    assert shaperouter.__all__ == sorted(shaperouter.__all__)


def test_exports_have_docstrings() -> None:
    for name in shaperouter.__all__:
        if name != "__version__":
            assert getattr(shaperouter, name).__doc__


def test_every_error_is_a_shaperouter_error() -> None:
    for name in shaperouter.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(shaperouter, name), shaperouter.ShaperouterError)


def test_version_equals_that_of_the_distribution() -> None:
    assert shaperouter.__version__ == importlib.metadata.version("shaperouter")


def test_raw_stubs_are_importable() -> None:
    from shaperouter.v1 import generation_pb2, generation_pb2_grpc

    assert generation_pb2.GenerateRequest(text="x").text == "x"
    assert generation_pb2_grpc.GenerationServiceStub


def test_building_a_wheel_leaves_no_files_in_the_checkout(tmp_path: Path) -> None:
    source = tmp_path / "client"
    # The wheel contains nothing of the TypeScript client, which another test may be building.
    ignored = shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "typescript")
    shutil.copytree(CHECKOUT / "client", source, ignore=ignored)
    before = sorted(source.rglob("*"))
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    assert sorted(source.rglob("*")) == before
    (wheel,) = tmp_path.glob("*.whl")
    contents = set(zipfile.ZipFile(wheel).namelist())
    files = {
        str(path.relative_to(source))
        for path in [*source.rglob("shaperouter/**/*"), source / "shaperouter_command.py"]
        if path.suffix in (".py", ".pyi", ".typed")
    }
    assert contents >= files
