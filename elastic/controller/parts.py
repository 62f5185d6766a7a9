"""What a controller is assembled from: kinds of jobs by their names, their definitions, an engine.

They are values of `Parts`, so that a controller can be run, and installed, with others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from elastic.controller.machinery.meter import Sample
from elastic.controller.reconciling import Kind
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest
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
        self, cluster: Cluster, kinds: Sequence[Kind], namespace: str | None, num_workers: int
    ) -> Engine:
        """Keep the parts.

        Args:
            cluster: Where the jobs are.
            kinds: What is reconciled.
            namespace: Whose jobs; None for those of all namespaces.
            num_workers: Passes at once.
        """


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is made of.

    Attributes:
        kinds: By the name that `--kinds` takes: that of its objects in lower case.
        definitions: The CustomResourceDefinitions of all kinds.
        make_engine: See `MakeEngine`.
    """

    kinds: Mapping[str, Kind]
    definitions: Callable[[], list[Manifest]]
    make_engine: MakeEngine

    def chosen(self, names: Sequence[str]) -> dict[str, Kind]:
        """The kinds of these names, in the order of `kinds`; all of them where none is named.

        Raises:
            JobSpecError: There is no such kind.
        """
        asked = [name.strip().lower() for name in names if name.strip()]
        for name in asked:
            if name not in self.kinds:
                hint = nearest(name, list(self.kinds))
                known = ", ".join(self.kinds)
                raise JobSpecError(
                    f"--kinds: there is no kind {name!r}"
                    + (f": did you mean {hint}?" if hint else f": there are {known}")
                )
        return {name: kind for name, kind in self.kinds.items() if not asked or name in asked}
