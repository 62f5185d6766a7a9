"""What a controller is assembled from: kinds of jobs by their names, their definitions, an engine.

They are values of `Parts`, so that a controller can be run, and installed, with others.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from elastic.controller.machinery.meter import Sample
from elastic.controller.reconciling import Kind, Scaler
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.spec.names import nearest


class Engine(Protocol):
    """Watches, decides and acts, on threads of its own."""

    @property
    def is_synced(self) -> bool:
        """Whether all that is watched has been listed once."""

    def start(self) -> None:
        """Begin; returns soon.

        Raises:
            PlatformError: The cluster cannot be used.
        """

    def stop(self) -> None:
        """Let the passes in work end, and begin no more."""

    def sample(self) -> Sample:
        """What there is to tell of it at this moment."""


class MakeEngine(Protocol):
    """Makes an engine that has not started."""

    def __call__(
        self,
        cluster: Cluster,
        kinds: Sequence[Kind],
        namespace: str | None,
        num_workers: int,
        *,
        events_cluster: Cluster,
        instance: str,
        scaler: Scaler | None = None,
    ) -> Engine:
        """Keep the parts.

        Args:
            cluster: Where the jobs are.
            kinds: What is reconciled.
            namespace: Whose jobs; None for those of all namespaces.
            num_workers: Passes at once.
            events_cluster: Where events are written, at a pace of its own.
            instance: Names this process in them.
            scaler: See `Parts`.
        """


IsServed: TypeAlias = Callable[[Resource], bool]
"""Whether a cluster knows a type."""


def everything(_resource: Resource) -> bool:
    """Of a cluster that knows all types, also those of other projects that a kind may use."""
    return True


def _no_scaler(_kinds: Collection[str]) -> None:
    """Each job has its own size."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is made of.

    Attributes:
        make_kinds: Of a cluster that knows certain types, the kinds by the name that `--kinds`
            takes: that of their objects in lower case.
        definitions: The CustomResourceDefinitions of all kinds.
        make_engine: See `MakeEngine`.
        make_scaler: Of the names of some kinds, what decides the sizes of all their jobs together;
            None where nothing does. It raises `JobSpecError` where it has nothing to decide on.
    """

    make_kinds: Callable[[IsServed], Mapping[str, Kind]]
    definitions: Callable[[], list[Manifest]]
    make_engine: MakeEngine
    make_scaler: Callable[[Collection[str]], Scaler | None] = _no_scaler

    def names(self) -> tuple[str, ...]:
        """Of all kinds."""
        return tuple(self.make_kinds(everything))

    def chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names of kinds that are meant, in the order of all; all where none is named.

        Raises:
            JobSpecError: There is no such kind.
        """
        known = self.names()
        asked = [name.lower() for name in names]
        for name in asked:
            if name not in known:
                hint = nearest(name, known)
                raise JobSpecError(
                    f"--kinds: there is no kind {name!r}"
                    + (f": did you mean {hint}?" if hint else f": there are {', '.join(known)}")
                )
        return tuple(name for name in known if not asked or name in asked)

    def kinds(self, names: Sequence[str], is_served: IsServed = everything) -> dict[str, Kind]:
        """Some of the kinds, by their names."""
        return {name: kind for name, kind in self.make_kinds(is_served).items() if name in names}
