"""Builds outside of the checkout; everything else is in pyproject.toml.

By itself, setuptools leaves ``build`` and an ``egg-info`` beside the sources, and puts whatever a
former version of them left in ``build`` into the next wheel.
"""

import tempfile

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.egg_info import egg_info

_FOLDER = tempfile.TemporaryDirectory(prefix="shaperouter-build-")


class Build(build):
    """Builds in a folder that is removed."""

    def initialize_options(self) -> None:
        """Sets the folder."""
        super().initialize_options()
        self.build_base = _FOLDER.name


class EggInfo(egg_info):
    """Writes to the same folder, unless an option names another."""

    def initialize_options(self) -> None:
        """Sets the folder."""
        super().initialize_options()
        self.egg_base = _FOLDER.name


setup(cmdclass={"build": Build, "egg_info": EggInfo})
