"""The file `shaperouter.toml` beside a function, which says what cannot be guessed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shaperouter_service.errors import StartupError
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.system import toml
from shaperouter_service.tensors.specs import Scalar

SETTINGS = "shaperouter.toml"
MAX_SETTINGS_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class AxisSettings:
    """The settings of one axis.

    Attributes:
        inputs: The dimension of each input that has its size; empty to guess.
        outputs: The same for outputs.
        pad: The value that pads each input.
        ladder: Its ladder; None for the default one.
        exact: Whether it is never padded.
    """

    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)
    pad: Mapping[str, Scalar] = field(default_factory=dict)
    ladder: Ladder | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class FunctionSettings:
    """What the file says.

    Attributes:
        path: Path of the file, for errors.
        signature: Signature of the SavedModel to serve; None for the usual one.
        jit: Whether XLA compiles it.
        axes: Its axes, by name.
    """

    path: Path
    signature: str | None = None
    jit: bool = True
    axes: Mapping[str, AxisSettings] = field(default_factory=dict)

    def error(self, message: str) -> StartupError:
        """Creates an error about this file."""
        return StartupError(f"{self.path}: {message}")


def read_settings(directory: Path) -> FunctionSettings:
    """Reads the file in a directory; without one, everything is guessed.

    Raises:
        StartupError: The file is not TOML, or has an unknown key or a value of another type.
    """
    path = directory / SETTINGS
    settings = FunctionSettings(path=path)
    try:
        if not path.exists():
            return settings
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            raise settings.error(f"must have at most {MAX_SETTINGS_BYTES} bytes")
        content = toml.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise settings.error(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise settings.error(f"is not valid TOML: {error}") from error
    _check_keys(settings, "", content, {"signature", "jit", "axes"})
    axes = _typed(settings, "axes", content.get("axes", {}), dict)
    return FunctionSettings(
        path=path,
        signature=_typed(settings, "signature", content.get("signature"), str),
        jit=_typed(settings, "jit", content.get("jit", True), bool),
        axes={name: _axis(settings, name, values) for name, values in axes.items()},
    )


def _axis(settings: FunctionSettings, name: str, values: Any) -> AxisSettings:
    key = f"axes.{name}"
    values = _typed(settings, key, values, dict)
    _check_keys(settings, f"{key}.", values, {"inputs", "outputs", "pad", "ladder"})
    ladder = _typed(settings, f"{key}.ladder", values.get("ladder"), list)
    try:
        rungs = None if not ladder else Ladder(tuple(ladder))
    except (ValueError, TypeError) as error:
        raise settings.error(f"{key}.ladder: {error}") from error
    return AxisSettings(
        inputs=_dimensions(settings, f"{key}.inputs", values.get("inputs", {})),
        outputs=_dimensions(settings, f"{key}.outputs", values.get("outputs", {})),
        pad=_typed(settings, f"{key}.pad", values.get("pad", {}), dict),
        ladder=rungs,
        exact=ladder == [],
    )


def _dimensions(settings: FunctionSettings, key: str, values: Any) -> dict[str, int]:
    values = _typed(settings, key, values, dict)
    for name, dimension in values.items():
        if type(dimension) is not int or dimension < 0:
            raise settings.error(f"{key}.{name} must be a dimension from 0, got {dimension!r}")
    return dict(values)


def _check_keys(
    settings: FunctionSettings, prefix: str, values: Mapping[str, Any], known: set[str]
) -> None:
    for name in values.keys() - known:
        keys = ", ".join(f"{prefix}{each}" for each in sorted(known))
        raise settings.error(f"unknown key {prefix}{name}; known keys: {keys}")


def _typed(settings: FunctionSettings, key: str, value: Any, kind: type) -> Any:
    if value is not None and type(value) is not kind:
        raise settings.error(f"{key} must be of type {kind.__name__}, got {value!r}")
    return value
