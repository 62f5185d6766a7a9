"""Policies by their names, and what can be said to them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from elastic.planning.telling import Remark
from elastic.policy.cluster.plan import Policy
from elastic.policy.cluster.snapshot import Snapshot
from elastic.policy.scaling.dragon import Dragon
from elastic.policy.scaling.fulfillment import Fulfillment
from elastic.policy.scaling.goodput import Goodput
from elastic.policy.scaling.queueing import Fifo, Gang
from elastic.policy.scaling.speeds.alike import alike_of
from elastic.policy.scaling.speeds.offers import not_weighed


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """What users may say to a policy; None for its own default.

    Attributes:
        max_load: The part of CPU and memory that is given out at most.
        starve_after_s: How long a job waits before others give way.
        grow_after_s: How long nothing has to happen before jobs grow.
    """

    max_load: float | None = None
    starve_after_s: float | None = None
    grow_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy that can be asked for by its name.

    Attributes:
        options: Those of `PolicyOptions` that it takes.
        remarks: What it says of the jobs of a snapshot whatever it decides.
    """

    make: Callable[..., Policy]
    summary: str
    options: frozenset[str] = frozenset()
    remarks: Callable[[Snapshot], Remark] = lambda _: lambda _: None

    def policy(self, options: PolicyOptions) -> Policy:
        """The policy with what was said of it."""
        said = {name: getattr(options, name) for name in sorted(self.options)}
        return self.make(**{name: value for name, value in said.items() if value is not None})


def _not_weighed(snapshot: Snapshot) -> Remark:
    return partial(not_weighed, alike=alike_of(snapshot.jobs, snapshot.shown))


POLICIES: Final[Mapping[str, NamedPolicy]] = MappingProxyType(
    {
        "fulfillment": NamedPolicy(
            Fulfillment,
            "room goes to who has the least of its range",
            frozenset({"max_load", "starve_after_s"}),
        ),
        "dragon": NamedPolicy(
            Dragon,
            "who waits may take workers from others, and idle room makes jobs grow",
            frozenset({"starve_after_s", "grow_after_s"}),
        ),
        "goodput": NamedPolicy(
            Goodput,
            "room goes where it shortens completion most, by the speeds that jobs tell",
            frozenset({"starve_after_s"}),
            _not_weighed,
        ),
        "gang": NamedPolicy(Gang, "the size that was asked for, or nothing; never resized"),
        "fifo": NamedPolicy(Fifo, "the same, strictly in the order of submission"),
    }
)
