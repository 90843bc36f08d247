"""Deployments: which revisions of each model a service should have loaded, and which serve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# Separates name and digest in workers' names of revisions. No name contains it.
_MARK = "@"

# Digits of the digest in workers' names of revisions, logs and metrics: enough that no two
# revisions share them.
REVISION_DIGITS = 12


def public_name(model: str) -> str:
    """The name that requests use for a model, from the worker's name of one of its revisions."""
    return model.partition(_MARK)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One state of a model's files.

    Attributes:
        model: What workers call it: `NAME@DIGITS`, or `NAME` if they loaded it at their start.
        digest: Digest of its files; see `checkpoints.digest`.
        location: Path of its files in the model repository; empty for one loaded at the start.
        share: Its share of the requests, from 0 to 1; with 0 it is only kept loaded.
    """

    model: str
    digest: str
    location: str = ""
    share: float = 1.0

    @classmethod
    def of(cls, name: str, *, digest: str, location: str, share: float) -> "Revision":
        """A revision that is loaded while the service runs; `name` is what requests use."""
        model = f"{name}{_MARK}{digest[:REVISION_DIGITS]}"
        return cls(model=model, digest=digest, location=location, share=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a share of the requests to a name goes.

    Attributes:
        model: Of an alias, the name of a model. Of a model, the workers' name of a revision.
        share: Its share of the requests, above 0 and at most 1.
    """

    model: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The revisions that a service should have under one name, or the models of an alias.

    Attributes:
        name: The name that requests use.
        version: Number of the deployment, higher than that of any before it; at least 1.
        revisions: The revisions to have loaded; empty if the name is no longer served.
        everywhere: Whether all workers should have it; else those that had the name at their start.
        targets: The models of an alias, which has no revisions of its own.
        on_demand: Whether a request loaded it, or the next request may: operators have neither
            loaded nor unloaded it.
    """

    name: str
    version: int
    revisions: Sequence[Revision] = ()
    everywhere: bool = False
    targets: Sequence[Target] = ()
    on_demand: bool = False

    def __post_init__(self) -> None:
        """Makes the sequences tuples, so that deployments from all sources compare equal."""
        object.__setattr__(self, "revisions", tuple(self.revisions))
        object.__setattr__(self, "targets", tuple(self.targets))

    @property
    def serving(self) -> list[Revision]:
        """The revisions that get requests."""
        return [revision for revision in self.revisions if revision.share > 0]

    def supersedes(self, other: "Deployment | None") -> bool:
        """Whether it replaces another deployment of its name; all processes agree on this."""
        return other is None or self._order > other._order

    @property
    def _order(self) -> tuple[int, list[tuple[str, float]], bool, list[tuple[str, str]], bool]:
        # Two routers may choose the same version at the same moment. A worker of an earlier version
        # of the service reports neither targets nor whether it is on demand.
        shares = [(revision.model, revision.share) for revision in self.revisions]
        shares += [(target.model, target.share) for target in self.targets]
        # Whatever differs decides: of two that tie, each process would keep the one it heard first.
        files = [(revision.digest, revision.location) for revision in self.revisions]
        return self.version, shares, self.on_demand, files, self.everywhere


class RevisionState(StrEnum):
    """How far a worker has loaded a revision."""

    LOADING = "loading"  # reads its files, or makes its first graphs
    READY = "ready"  # can serve
    FAILED = "failed"  # could not load it, and tries again after a pause


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionReport:
    """The state of a revision on a worker.

    Attributes:
        model: What workers call the revision.
        state: Its state.
        error: Why it could not be loaded; only if it has failed.
        progress: What is being done, for people; only while it is loaded.
        idle_seconds: Seconds since it was last used, or became ready; 0 while requests use it.
    """

    model: str
    state: RevisionState
    error: str = ""
    progress: str = ""
    idle_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """A router's message to workers: the models that it needs loaded.

    Attributes:
        router: Identifies the router's process.
        deployments: The newest deployments that the router follows, one for each name.
        held: Revisions in none of these that requests of the router still use.
    """

    router: str
    deployments: Sequence[Deployment] = ()
    held: Sequence[Revision] = ()


def newest(known: Mapping[str, Deployment], told: Iterable[Deployment]) -> dict[str, Deployment]:
    """The newest deployment of each name, among those known and those told."""
    found = dict(known)
    for deployment in told:
        if deployment.supersedes(found.get(deployment.name)):
            found[deployment.name] = deployment
    return found
