"""Builds the images of router and CPU worker from their Dockerfiles, and runs them.

Exits with 1 and says why if it cannot, also where the kernel does not let containers run: what was
not built must not look as if it had been.
"""

import argparse
import sys
import tomllib
from pathlib import Path

from images import contents, trial
from images.base import base_of
from images.engine import EngineError, build, install, podman, say

ROOT = Path(__file__).parents[3]

# The locks of the images, and the directories where volumes are mounted.
IMAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "router": ("service/router.lock", ()),
    "worker": ("service/worker.lock", ("/var/cache/shaperouter",)),
}


def make(output: Path) -> None:
    """Makes the images, runs them and lists their packages."""
    install()
    project = tomllib.loads((ROOT / "service" / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    dockerfiles = {name: ROOT / "deploy" / "docker" / f"Dockerfile.{name}" for name in IMAGES}
    base = base_of(dockerfiles["router"])
    trial.permitted(base)
    tags = {name: f"localhost/shaperouter/{name}:{version}" for name in IMAGES}
    for name, (lock, volumes) in IMAGES.items():
        build(dockerfiles[name], tags[name], ROOT, [f"PYTHON={base}"])
        trial.look(tags[name], volumes)
        found = contents.contents_of(tags[name], base)
        contents.write(found, output / f"{name}.tsv")
        wrong = contents.unlike_lock(found.python, (ROOT / lock).read_text(encoding="utf-8"))
        if wrong:
            raise EngineError(f"{tags[name]} is not what {lock} says: {dict(wrong)}")
        say(
            f"{tags[name]}: {found.size / 1e9:.2f} GB, {found.above_base / 1e9:.2f} GB of it above "
            f"the base; {len(found.python)} Python and {len(found.debian)} Debian packages, "
            f"listed in {output / name}.tsv"
        )
    say(f"Answer of both images: {trial.serve(tags['router'], tags['worker'])!r}")
    # What the first stages have left.
    podman("image", "prune", "--force")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="images", description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="folder for the lists of packages")
    given = parser.parse_args()
    try:
        make(given.output)
    except EngineError as error:
        sys.exit(f"images: {error}")
