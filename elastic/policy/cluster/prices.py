"""What the policy `goodput` weighs: who comes first, and what a size of a job costs all others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elastic.policy.cluster.offers import Offer, Size

PRICE: Final = 2.0
"""Seconds that a second of the whole cluster costs each job behind: above 1, as more jobs come."""

KEEP: Final = 0.1
"""By how much another size has to be better than the one that a job has."""

SETTLED_S: Final = 300.0
"""A change has to pay for itself in as long as a job has kept its size, at the least in this."""

AGE_S: Final = 24 * 3600.0
"""A job that is so old is served as if it had half the work left."""


def rank(offer: Offer, share: float, now_s: float) -> tuple[float, float, str]:
    """For sorting: who has the least work left comes first, the older it is the sooner.

    Args:
        offer: The job.
        share: The part of the cluster that one replica takes.
        now_s: The time.
    """
    job = offer.job
    age_s = max(0.0, now_s - job.submitted_s)
    return (offer.work_s * share / (1 + age_s / AGE_S), job.submitted_s, job.key)


@dataclass(frozen=True, slots=True)
class Price:
    """What replicas of one job cost those behind it, in seconds for each second that it has them.

    Attributes:
        each: For each replica, by what the cluster does in that time.
        spare: Replicas that nobody behind would need for a modest size.
        modest_mean: Replicas of such a size.
    """

    each: float
    spare: int
    modest_mean: float

    def of(self, replicas: int) -> float:
        """Its own second, and those of others."""
        squeezed = min(replicas, max(0, replicas - self.spare)) / self.modest_mean
        return 1 + self.each * replicas + squeezed


class Behind:
    """The jobs not yet served: how many, and what they need to run at a modest size."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        sizes = [offer.modest for offer in offers]
        self.jobs = len(sizes)
        self._modest = sum(sizes)
        self._modest_mean = max(1.0, self._modest / max(1, self.jobs))

    def leave(self, offer: Offer) -> None:
        """It is this one's turn."""
        self.jobs -= 1
        self._modest -= offer.modest

    def price(self, share: float, at_most: int) -> Price:
        """What they ask of a job whose replicas take such a share each.

        Args:
            share: The part of the cluster that one replica takes.
            at_most: How many of its replicas could have room.
        """
        return Price(PRICE * self.jobs * share, at_most - self._modest, self._modest_mean)


def cost_s(offer: Offer, size: Size, price: Price, rescale_s: float | None, now_s: float) -> float:
    """What a size of a job costs, itself and others, until its work is done.

    Args:
        offer: The job.
        size: Its size then.
        price: What each second costs.
        rescale_s: What a change costs; None where nothing changes.
        now_s: The time.
    """
    seconds = offer.remaining_samples / size.samples_per_s
    if rescale_s is None:
        return seconds * price.of(size.replicas) * (1 - KEEP)
    job = offer.job
    if job.workers.placed and job.last_scaled_s is not None:
        settled_s = max(SETTLED_S, now_s - job.last_scaled_s)
        rescale_s *= max(1.0, seconds / settled_s)
    return (seconds + rescale_s) * price.of(size.replicas)
