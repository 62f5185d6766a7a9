"""The engine: things happen in the order of their times, and the policy decides at a fixed rate.

At each moment jobs that are done end first, then services change, then jobs are submitted; then, at
multiples of the period, the policy is asked. Pods that nobody has placed go where Kubernetes'
scheduler would put them. Stopping takes no time.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from elastic.errors import ElasticError
from elastic.policy.cluster import Decision, Node, Plan, Pod, Policy, Snapshot, total_of
from elastic.simulation.outcome import Outcome, Usage
from elastic.simulation.running import Replicas, Rooms, RunningJob
from elastic.simulation.workload import Service, Workload

RESCALE_S: Final[Mapping[str, float]] = MappingProxyType(
    {"TrainingJob": 0.0, "TFJob": 0.0, "ElasticTrainJob": 1.0, "ElasticJob": 30.0}
)
"""Seconds without progress for each change of the size, by kind: workers of parameter servers come
and go beside the others, ours lose a minibatch, and torchrun starts all of them again."""

_PATIENCE_S: Final = 600.0
"""Longer than any rule of a policy waits. When nothing else can happen any more and the policy has
done nothing for so long, it never will."""

_END, _SERVE, _SUBMIT = range(3)
"""Kinds of events, in the order in which those of one moment happen."""


class PlanError(ElasticError):
    """A policy has decided what cannot be: a mistake of the policy."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a simulation goes.

    Attributes:
        period_s: The policy is asked at multiples of it, > 0.
        rescale_s: By kind, for jobs that say nothing else; 0 for a kind that is not there.
    """

    period_s: float = 5.0
    rescale_s: Mapping[str, float] = field(default_factory=lambda: RESCALE_S)


def simulate(
    nodes: Sequence[Node],
    workload: Workload,
    policy: Policy,
    settings: Settings = Settings(),
    on_end: Callable[[int], None] = lambda _: None,
) -> Outcome:
    """Run a workload until nothing is left to happen.

    Args:
        nodes: The machines.
        workload: What is submitted.
        policy: Who decides.
        settings: How it goes.
        on_end: Called with how many jobs have ended, whenever some have: large ones take minutes.

    Raises:
        PlanError: The policy has placed what has no room, or decided on a job that is not there.
    """
    return _Simulation(nodes, workload, policy, settings).run(on_end)


@dataclass(slots=True)
class _Pods:
    """The pods of a service."""

    service: Service
    wanted: int = 0
    nodes: list[str] = field(default_factory=list)

    def shrink(self, rooms: Rooms) -> None:
        """Give back what is too much, the newest first, as Kubernetes does."""
        while len(self.nodes) > self.wanted:
            rooms.give_back(self.nodes.pop(), self.service.requests, 1)

    def place(self, rooms: Rooms) -> None:
        """Find nodes for what has none."""
        service = self.service
        while len(self.nodes) < self.wanted:
            node = rooms.best_node(service.requests, service.rules, None)
            if node is None:
                return
            rooms.take(node, service.requests, 1)
            self.nodes.append(node)

    def view(self) -> list[Pod]:
        """As policies see them."""
        service = self.service
        nodes = [*self.nodes, *[None] * (self.wanted - len(self.nodes))]
        return [Pod(node, service.requests, service.limits, service.rules) for node in nodes]


class _Simulation:
    def __init__(
        self, nodes: Sequence[Node], workload: Workload, policy: Policy, settings: Settings
    ) -> None:
        self._nodes, self._policy, self._settings = tuple(nodes), policy, settings
        self._rooms = Rooms(nodes)
        self._jobs = [
            RunningJob(
                each,
                each.rescale_s
                if each.rescale_s is not None
                else settings.rescale_s.get(each.job.kind, 0.0),
            )
            for each in workload.submissions
        ]
        self._active: dict[str, RunningJob] = {}
        # Of those, so that no event has to look at all of them; in the order of their coming.
        self._waiting: dict[str, RunningJob] = {}
        self._growing: dict[str, RunningJob] = {}
        self._nodeless: dict[str, RunningJob] = {}
        self._services = [_Pods(each) for each in workload.services]
        self._pods: tuple[Pod, ...] = ()
        self._events: list[tuple[float, int, int, int]] = []
        self._indices = {job.key: index for index, job in enumerate(self._jobs)}
        self._now_s = 0.0
        self._last_change_s: float | None = None
        self._is_news = False
        self._quiet_since_s: float | None = None
        self._last_tick = -1
        self._num_plans = 0
        self._num_ended = 0
        self._usage: list[Usage] = []
        self._notes: dict[str, str] = {}

    def run(self, on_end: Callable[[int], None]) -> Outcome:
        """See `simulate`."""
        told = 0
        for index, job in enumerate(self._jobs):
            heapq.heappush(self._events, (job.submission.job.submitted_s, _SUBMIT, index, 0))
        for index, pods in enumerate(self._services):
            for at_s, count in pods.service.steps:
                heapq.heappush(self._events, (at_s, _SERVE, index, count))
        while (at_s := self._next_s()) < math.inf:
            self._now_s = at_s
            while self._events and self._events[0][0] <= at_s:
                self._happen(heapq.heappop(self._events))
            if self._tick_s() <= at_s:
                self._decide()
            self._record()
            if self._num_ended > told:
                told = self._num_ended
                on_end(told)
        return Outcome(
            tuple(job.run() for job in self._jobs),
            total_of((node.allocatable, 1) for node in self._nodes),
            tuple(self._usage),
            self._now_s,
            self._num_plans,
            {job.key: self._notes.get(job.key, "") for job in self._jobs if job.started_s is None},
        )

    def _next_s(self) -> float:
        event_s = self._events[0][0] if self._events else math.inf
        return min(event_s, self._tick_s())

    def _tick_s(self) -> float:
        """When the policy is to be asked next; infinite while it could change nothing."""
        if not self._active:
            return math.inf
        if not self._is_news and not self._growing:
            return math.inf
        quiet_s = 0.0 if self._quiet_since_s is None else self._now_s - self._quiet_since_s
        if not self._is_news and not self._events and quiet_s > _PATIENCE_S:
            return math.inf
        at = max(self._last_tick + 1, math.ceil(self._now_s / self._settings.period_s - 1e-9))
        return at * self._settings.period_s

    def _happen(self, event: tuple[float, int, int, int]) -> None:
        _, kind, index, number = event
        if kind == _SERVE:
            self._services[index].wanted = number
            self._services[index].shrink(self._rooms)
        elif kind == _SUBMIT:
            job = self._jobs[index]
            self._active[job.key] = job
            self._sort(job)
        else:
            job = self._jobs[index]
            if job.version != number:
                return
            job.finish(self._rooms, self._now_s)
            del self._active[job.key]
            self._num_ended += 1
            self._sort(job)
        self._is_news = True
        self._place_pending()

    def _decide(self) -> None:
        self._last_tick = round(self._now_s / self._settings.period_s)
        self._is_news = False
        self._num_plans += 1
        plan = self._policy.plan(self._snapshot())
        for note in plan.notes:
            self._notes[note.job] = note.text
        if not plan.decisions:
            self._quiet_since_s = (
                self._now_s if self._quiet_since_s is None else self._quiet_since_s
            )
            return
        self._quiet_since_s = None
        self._carry_out(plan)

    def _snapshot(self) -> Snapshot:
        jobs = tuple(job.view(self._now_s) for job in self._active.values())
        return Snapshot(self._now_s, self._nodes, jobs, self._pods, self._last_change_s)

    def _carry_out(self, plan: Plan) -> None:
        for decision in plan.decisions:
            job = self._active.get(decision.job)
            if job is None:
                raise PlanError(f"{self._who()} decides on {decision.job}, which is not there")
            if problem := _apply(decision, job, self._rooms):
                raise PlanError(
                    f"{self._who()} at second {self._now_s:g}, on {decision.job} "
                    f"({decision.reason}): {problem}"
                )
            self._foresee(job)
        self._last_change_s = self._now_s
        # What was decided may make room for what could not be done before.
        self._is_news = True
        self._place_pending()

    def _who(self) -> str:
        return f"policy {type(self._policy).__name__}"

    def _foresee(self, job: RunningJob) -> None:
        """Tell a job that it has changed, and when it is done then."""
        job.changed(self._now_s)
        self._sort(job)
        if (end_s := job.end_s(self._now_s)) is not None:
            heapq.heappush(self._events, (end_s, _END, self._indices[job.key], job.version))

    def _sort(self, job: RunningJob) -> None:
        is_active = job.key in self._active
        for jobs, belongs in (
            (self._waiting, job.waiting_since_s is not None),
            (self._growing, not job.is_at_most),
            (self._nodeless, any(each.wanted > each.placed for each in job.groups)),
        ):
            if is_active and belongs:
                jobs[job.key] = job
            else:
                jobs.pop(job.key, None)

    def _place_pending(self) -> None:
        """Find nodes for pods that wait for one: those of services, then of jobs by their age."""
        for pods in self._services:
            pods.place(self._rooms)
        self._pods = tuple(pod for pods in self._services for pod in pods.view())
        for job in list(self._nodeless.values()):
            if sum(_place_waiting(group, self._rooms) for group in job.groups):
                self._foresee(job)

    def _record(self) -> None:
        services = total_of((pods.service.requests, len(pods.nodes)) for pods in self._services)
        waiting, used = len(self._waiting), dict(self._rooms.used)
        cards, milli = self._rooms.cards_in_use, self._rooms.shared_milli
        now = Usage(self._now_s, used, services, cards, milli, waiting)
        if self._usage and self._usage[-1].at_s == self._now_s:
            self._usage.pop()
        last = self._usage[-1] if self._usage else None
        if last is None or (last.used, last.services, last.waiting) != (used, services, waiting):
            self._usage.append(now)


def _place_waiting(replicas: Replicas, rooms: Rooms) -> int:
    """Find nodes for replicas that wait for one; how many were found."""
    group, before = replicas.group, replicas.placed
    while replicas.placed < replicas.wanted:
        node = rooms.best_node(group.requests, group.rules, group.share)
        if node is None:
            break
        replicas.put(rooms, node)
    return replicas.placed - before


def _apply(decision: Decision, job: RunningJob, rooms: Rooms) -> str:
    """Do to a job what was decided; what is wrong with it, or nothing."""
    if decision.replicas == 0 and job.workers.group.min > 0:
        for each in job.groups:
            each.shrink(rooms, 0)
        return ""
    wanted = [(job.workers, decision.replicas, decision.placement)]
    if job.ps is not None:
        ps_replicas = decision.ps_replicas
        if ps_replicas is None:
            ps_replicas = job.ps.wanted or job.ps.group.min
        wanted.append((job.ps, ps_replicas, decision.ps_placement))
    for other in job.others:
        placement = decision.other_placements.get(other.group.role)
        wanted.append((other, other.wanted or other.group.min, placement))
    # What the job gives back itself may be what it takes.
    for replicas, count, _ in wanted:
        if not replicas.group.min <= count <= replicas.group.max:
            low, high = replicas.group.min, replicas.group.max
            return f"{count} {replicas.group.role} is outside of {low} to {high}"
    for replicas, count, placement in wanted:
        if placement is None:
            replicas.shrink(rooms, min(count, max(replicas.wanted, replicas.placed)))
        replicas.wanted = count
    for replicas, count, placement in wanted:
        if placement is None:
            continue
        if sum(placement.values()) > count:
            return f"{sum(placement.values())} {replicas.group.role} are placed of {count}"
        if problem := replicas.place(rooms, placement, decision.cards.get(replicas.group.role)):
            return problem
    return ""
