"""What the policy `goodput` weighs: who comes first, and what a size of a job costs all others."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from elastic.policy.scaling.speeds.offers import Offer

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
        spare: Replicas that nobody behind would need for a modest size; all there could be, where
            that does not count.
        modest_mean: Replicas of such a size.
    """

    each: float
    spare: int
    modest_mean: float

    def of(self, replicas: int) -> float:
        """Its own second, and those of others."""
        squeezed = replicas - self.spare if self.spare > 0 else replicas
        return 1 + self.each * replicas + (squeezed if squeezed > 0 else 0) / self.modest_mean


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

    def price(self, share: float, at_most: int, *, is_guess: bool) -> Price:
        """What they ask of a job whose replicas take such a share each.

        A job that is known to have the least work left may take all, and be gone the sooner. One
        that is only taken to have the least may go on for long, and leaves others room to run.

        Args:
            share: The part of the cluster that one replica takes.
            at_most: How many of its replicas could have room.
            is_guess: Whether its work is.
        """
        spare = at_most - self._modest if is_guess else at_most
        return Price(PRICE * self.jobs * share, spare, self._modest_mean)


@dataclass(frozen=True, slots=True)
class Costs:
    """What sizes of a job cost, itself and others, until its work is done.

    Attributes:
        price: What each second costs.
        rescale_s: What a change costs.
        settled_s: In how long a change has to pay for itself; None for a job that starts.
    """

    remaining_samples: float
    price: Price
    rescale_s: float
    settled_s: float | None

    @classmethod
    def of(cls, offer: Offer, price: Price, rescale_s: float, now_s: float) -> "Costs":
        """Of the sizes of one job."""
        job, settled_s = offer.job, None
        if job.workers.placed and job.last_scaled_s is not None:
            settled_s = max(SETTLED_S, now_s - job.last_scaled_s)
        return cls(offer.remaining_samples, price, rescale_s, settled_s)

    def unchanged(self, replicas: int, samples_per_s: float) -> float:
        """Of the size that it has, where it is."""
        seconds = self.remaining_samples / samples_per_s
        return seconds * self.price.of(replicas) * (1 - KEEP)

    def changed(self, replicas: int, samples_per_s: float) -> float:
        """Of another."""
        seconds, rescale_s = self.remaining_samples / samples_per_s, self.rescale_s
        if self.settled_s is not None and seconds > self.settled_s:
            rescale_s *= seconds / self.settled_s
        return (seconds + rescale_s) * self.price.of(replicas)
