"""What a controller is assembled from, and the one that is shipped: kinds, sizes, engine.

Kinds of jobs by their names, their definitions and an engine are values of `Parts`, so that a
controller can be run, and installed, with others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from elastic.controller.autoscaling import SCALED, ClusterScaler, Share
from elastic.controller.kinds.common import Queues
from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.kinds.training_job import TrainingJobs
from elastic.controller.kinds.training_look import given_sizes, wanted_sizes
from elastic.controller.machinery.engine import Engine
from elastic.controller.machinery.meter import Sample
from elastic.controller.reconciling import Kind, Scaler
from elastic.controller.resources.definitions import definitions
from elastic.controller.resources.tf_job import SHARE_PODS
from elastic.controller.settings import AUTOSCALERS, DRAGON, NO_AUTOSCALING, Autoscaling
from elastic.errors import JobSpecError
from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import Manifest, Resource
from elastic.policy.cluster import Policy
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput
from elastic.spec.values import nearest


class AnyEngine(Protocol):
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
    ) -> AnyEngine:
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


# The controller as it is shipped: all kinds, what decides their sizes, and the engine.


TF_JOBS: Final = "tfjob"


def assembled(autoscaling: Autoscaling = NO_AUTOSCALING) -> Parts:
    """All parts.

    Args:
        autoscaling: Who decides the sizes of jobs.
    """

    def make_kinds(is_served: IsServed) -> dict[str, Kind]:
        return _kinds(is_served, autoscaling)

    def make_scaler(kinds: Collection[str]) -> Scaler | None:
        _refuse_idle_flags(autoscaling, kinds)
        shares = tuple(_shares(autoscaling, frozenset(kinds)))
        return ClusterScaler(shares, autoscaling.hold_s) if shares else None

    return Parts(make_kinds, definitions, Engine, make_scaler)


def _kinds(is_served: IsServed, autoscaling: Autoscaling) -> dict[str, Kind]:
    has_kubeshare, queues = is_served(SHARE_PODS), Queues.of(is_served)
    kinds: tuple[Kind, ...] = (
        TrainingJobs(given_sizes if autoscaling.policy else wanted_sizes, queues=queues),
        ElasticJobs(queues),
        TFJobs(has_kubeshare, is_planned=autoscaling.tf_scheduler == DRAGON),
        ElasticTrainJobs(queues),
    )
    return {kind.resource.kind.lower(): kind for kind in kinds}


def _refuse_idle_flags(autoscaling: Autoscaling, kinds: Collection[str]) -> None:
    """Refuse who is to decide, and has nothing to decide on.

    Raises:
        JobSpecError: See above.
    """
    looked_after = ", ".join(kinds)
    if autoscaling.policy and not SCALED & frozenset(kinds):
        raise JobSpecError(
            f"--autoscale {autoscaling.policy} decides on {', '.join(sorted(SCALED))}, and --kinds "
            f"has {looked_after}: add one of them, or leave --autoscale out"
        )
    if autoscaling.tf_scheduler == DRAGON and TF_JOBS not in kinds:
        raise JobSpecError(
            f"--tf_scheduler {DRAGON} places the replicas of {TF_JOBS}, and --kinds has "
            f"{looked_after}: add it, or leave --tf_scheduler out"
        )


def _shares(autoscaling: Autoscaling, kinds: frozenset[str]) -> Iterator[Share]:
    if autoscaling.policy and (scaled := kinds & SCALED):
        yield Share(scaled, _policy(autoscaling))
    if autoscaling.tf_scheduler == DRAGON and TF_JOBS in kinds:
        said = {
            "starve_after_s": autoscaling.starve_after_s,
            "grow_after_s": autoscaling.grow_after_s,
        }
        yield Share(
            frozenset({TF_JOBS}),
            Dragon(**{name: value for name, value in said.items() if value is not None}),
        )


def _policy(autoscaling: Autoscaling) -> Policy:
    assert autoscaling.policy in AUTOSCALERS, f"there is no policy {autoscaling.policy!r}"
    if autoscaling.policy == "goodput":
        return Goodput()
    if autoscaling.max_load is None:
        return Fulfillment()
    return Fulfillment(autoscaling.max_load)
