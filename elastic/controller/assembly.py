"""The controller as it is shipped: all kinds, what decides their sizes, and the engine."""

from collections.abc import Collection, Iterator
from typing import Final

from elastic.controller.autoscaling import SCALED, ClusterScaler, Share
from elastic.controller.kinds.elastic_job import ElasticJobs
from elastic.controller.kinds.elastic_train_job import ElasticTrainJobs
from elastic.controller.kinds.queueing import Queues
from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.kinds.training_job import TrainingJobs
from elastic.controller.kinds.training_look import given_sizes, wanted_sizes
from elastic.controller.machinery.engine import Engine
from elastic.controller.parts import IsServed, Parts
from elastic.controller.reconciling import Kind, Scaler
from elastic.controller.resources.definitions import definitions
from elastic.controller.resources.tf_job import SHARE_PODS
from elastic.controller.settings import AUTOSCALERS, DRAGON, NO_AUTOSCALING, Autoscaling
from elastic.errors import JobSpecError
from elastic.policy.cluster.plan import Policy
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput

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
