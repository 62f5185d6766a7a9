"""What a controller is told by its command line, with the defaults. Imports nothing large."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

NAME: Final = "elastic-controller"
"""Of the lease, of the Deployment, and of the account and the rights that go with it."""

IMAGE: Final = "elastic:controller"


AUTOSCALERS: Final = ("fulfillment", "goodput")
"""Policies that give jobs their sizes."""

FIRST_FIT: Final = "first-fit"
DRAGON: Final = "dragon"
TF_SCHEDULERS: Final = (FIRST_FIT, DRAGON)
"""Who places the replicas of TFJobs."""


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """Who decides the sizes of jobs.

    Attributes:
        policy: One of `AUTOSCALERS`; empty where each job has its own size alone.
        tf_scheduler: One of `TF_SCHEDULERS`.
        max_load: The part of CPU and memory that is given out at most; the policy's own where None.
        starve_after_s: How long a TFJob waits before others give it room; that of DRAGON where
            None, as is the next.
        grow_after_s: How long nothing has to have changed before TFJobs grow.
        hold_s: How long a size that a user has set is left alone.
    """

    policy: str = ""
    tf_scheduler: str = FIRST_FIT
    max_load: float | None = None
    starve_after_s: float | None = None
    grow_after_s: float | None = None
    hold_s: float = 600.0

    @property
    def is_on(self) -> bool:
        """Whether anything is decided on all jobs together."""
        return bool(self.policy) or self.tf_scheduler != FIRST_FIT

    def arguments(self) -> list[str]:
        """The flags of `elastic controller` that say so; none for what is so by default."""
        said = {
            "autoscale": self.policy,
            "tf_scheduler": self.tf_scheduler if self.tf_scheduler != FIRST_FIT else "",
            "max_load": _plain(self.max_load),
            "starve_after": _seconds(self.starve_after_s),
            "grow_after": _seconds(self.grow_after_s),
            "hold": _seconds(self.hold_s) if self.hold_s != Autoscaling().hold_s else "",
        }
        return [f"--{name}={value}" for name, value in said.items() if value]


def _plain(number: float | None) -> str:
    return "" if number is None else f"{number:g}"


def _seconds(number: float | None) -> str:
    return "" if number is None else f"{number:g}s"


NO_AUTOSCALING: Final = Autoscaling()


@dataclass(frozen=True, slots=True)
class Settings:
    """What a controller is told.

    Attributes:
        namespace: Whose jobs are looked after, and where the lease is; that of the context, or of
            the pod, where None.
        all_namespaces: Look after the jobs of all of them.
        kinds: Names of kinds; all of them where empty.
        kubeconfig: A file; as kubectl finds it, or the account of the pod, where None.
        context: Of the kubeconfig; its current one where None.
        port: For health and metrics; 0 for none.
        num_workers: Passes at once.
        lease_name: Controllers that share it take turns.
        requests_per_second: To the API server, on average. Twice what Kubernetes gives its own
            controllers: one of a thousand jobs makes ten thousand pods.
        autoscaling: Who decides the sizes of jobs.
    """

    namespace: str | None = None
    all_namespaces: bool = False
    kinds: Sequence[str] = ()
    kubeconfig: str | None = None
    context: str | None = None
    port: int = 8080
    num_workers: int = 8
    lease_name: str = NAME
    requests_per_second: float = 50.0
    autoscaling: Autoscaling = NO_AUTOSCALING


DEFAULTS: Final = Settings()
