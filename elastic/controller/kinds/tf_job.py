"""TFJob: places PS and workers, tells TensorFlow of its cluster, and knows the end.

What is to be written down of one follows from what is seen and what was written before. Pure.
Everything that happens is told once: by the status that remembers it. So is, once of each spec,
what can be read of it and has not the effect that its author may expect.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elastic.controller.kinds.common import (
    GROUP_LABEL,
    JOB_LABEL,
    TYPE_LABEL,
    JobCondition,
    deadline_in_s,
    ended_as,
    failures_in_a_row,
    find_condition,
    holds,
    name_of,
    no_longer,
    pause_s,
    queue_of,
    removal_in_s,
    soonest,
    told,
    uid_of,
    words_of,
)
from elastic.controller.kinds.placing import Rooms
from elastic.controller.kinds.tf_replicas import (
    GROUP,
    TF_CONFIG,
    Phase,
    Plan,
    Replica,
    View,
    of_role,
    plan_of,
    pod_of,
    replicas_of,
    service_of,
    wanted_of,
)
from elastic.controller.reconciling import (
    Action,
    Delete,
    EventType,
    Note,
    Observed,
    Outcome,
    Rejection,
)
from elastic.controller.resources.common import (
    CleanPodPolicy,
    Condition,
    ConditionStatus,
    ReplicaStatus,
    seconds_of,
    time_text,
    with_condition,
)
from elastic.controller.resources.tf_job import (
    RESOURCE,
    SHARE_PODS,
    Role,
    TFJobSpec,
    TFJobStatus,
    read_status,
    read_tf_job,
)
from elastic.platforms.kubernetes.api.resources import PODS, SERVICES, Manifest, Resource
from elastic.platforms.kubernetes.objects.names import QUEUE_LABEL
from elastic.platforms.kubernetes.pods import is_deleted

SCHEDULED: Final = "Scheduled"
"""The condition of a job all of whose replicas have a node."""

INVALID: Final = "InvalidSpec"
"""Why a job has failed that goes on once its spec was corrected."""

REJECTED: Final = "TFJobRejected"
"""Why a job has failed for good of which the API server does not take a pod."""

_UNSCHEDULABLE: Final = "TFJobUnschedulable"
_OF_SCHEDULERS: Final = ("schedulerName", "topologySpreadConstraints")
_OF_AFFINITY: Final = ("podAffinity", "podAntiAffinity")


@dataclass(frozen=True, slots=True)
class Account:
    """What a pass has found.

    Attributes:
        plan: None for a job that has ended.
    """

    status: TFJobStatus
    notes: tuple[Note, ...] = ()
    plan: Plan | None = None


def is_ended(status: TFJobStatus) -> bool:
    """Whether the job has succeeded, or failed for good."""
    how = ended_as(status.conditions)
    found = None if how is None else find_condition(status.conditions, how)
    return found is not None and found.reason != INVALID


def refused(before: TFJobStatus, problem: str, now_s: float) -> Account:
    """A job whose spec cannot be read: its pods are left alone until it can, or it is deleted."""
    if is_ended(before):
        return Account(before)
    conditions = told(before.conditions, JobCondition.FAILED, INVALID, problem, now_s)
    status = before.model_copy(update={"conditions": conditions})
    if status == before:
        return Account(before)
    return Account(status, (Note(INVALID, problem, EventType.WARNING),))


def rejected(before: TFJobStatus, name: str, problem: str, now_s: float) -> Account | None:
    """The end of a job of which not all can be made; None for one that runs, or is over."""
    if is_ended(before) or holds(before.conditions, JobCondition.RUNNING):
        return None
    message = f"TFJob {name} has failed because {problem}"
    conditions = told(before.conditions, JobCondition.FAILED, REJECTED, message, now_s)
    end = {"conditions": conditions, "completion_time": time_text(now_s)}
    note = Note(REJECTED, message, EventType.WARNING)
    return Account(before.model_copy(update=end), (note,))


def deadline_left_s(view: View) -> float | None:
    """Seconds until the job's deadline, 0 once it is over; None without one, or before it runs."""
    started, deadline_s = view.before.start_time, view.spec.active_deadline_seconds
    if started is None:
        return None
    return deadline_in_s(seconds_of(started), deadline_s, view.observed.now_s)


def account_of(view: View, unknown: Sequence[str]) -> Account:
    """What is to be written and told of a job, and what it is to have.

    Args:
        view: What is seen.
        unknown: Fields of the spec that mean nothing.
    """
    draft = _Draft(view)
    draft.accept(unknown)
    if is_ended(draft.status):
        draft.count()
        return draft.account()
    draft.count_ends()
    draft.judge()
    if is_ended(draft.status):
        draft.count()
        return draft.account()
    plan = plan_of(view)
    draft.schedule(plan)
    draft.count()
    draft.tell_phase()
    return draft.account(plan)


class _Draft:
    """The status of one pass, from the one before, step by step."""

    def __init__(self, view: View) -> None:
        self.status = view.before
        self._view = view
        self._now_s = view.observed.now_s
        self._notes: list[Note] = []
        self._newly_failed: Counter[Role] = Counter()

    def account(self, plan: Plan | None = None) -> Account:
        """What it has come to."""
        return Account(self.status, tuple(self._notes), plan)

    def accept(self, unknown: Sequence[str]) -> None:
        """Greet a new job, and warn of what its spec does not do."""
        job, conditions = self._view.observed.job, self.status.conditions
        if find_condition(conditions, JobCondition.CREATED) is None:
            message = f"TFJob {self._view.name} is created."
            self._hold(JobCondition.CREATED, "TFJobCreated", message)
        failed = find_condition(conditions, JobCondition.FAILED)
        if failed is not None and failed.reason == INVALID:
            self._hold_no_longer(JobCondition.FAILED)
        generation = job["metadata"].get("generation")
        if self.status.observed_generation != generation:
            self._notes += warnings_of(job, self._view.spec, unknown)
            self._update(observed_generation=generation)

    def count_ends(self) -> None:
        """Remember each bad end of a pod that is there, and what it costs."""
        before, spec = self.status, self._view.spec
        ends, failures, cost = {}, dict(before.failures), 0
        failed: Counter[Role] = Counter()
        for replica in self._view.replicas:
            known = before.ends.get(replica.uid, 0)
            ends[replica.uid] = max(known, replica.bad_ends)
            new = replica.bad_ends - known
            role = replica.role
            if new <= 0 or replica.is_deleted or role is None or role not in spec.roles:
                continue
            is_free = replica.has_failed and replica.is_free(spec.roles[role].restart_policy)
            cost += new - is_free
            self._notes.append(_end_note(self._view.namespace, replica))
            failed[role] += 1
            if replica.has_failed:
                row = failures.get(replica.name, 0)
                failures[replica.name] = failures_in_a_row(row, replica.ran_s)
                self._count_failed(role)
        self._newly_failed = failed
        self._update(
            ends={uid: number for uid, number in ends.items() if number},
            failures=failures,
            restarts=before.restarts + cost,
        )

    def judge(self) -> None:
        """Find out whether the job has ended, and how."""
        view, spec = self._view, self._view.spec
        policies = {role: replicas.restart_policy for role, replicas in spec.roles.items()}
        fatal = [
            each
            for each in view.replicas
            if each.role in policies and each.is_fatal(policies[each.role])
        ]
        if _has_succeeded(view):
            message = f"TFJob {view.name} successfully completed."
            self._end(JobCondition.SUCCEEDED, "TFJobSucceeded", message, EventType.NORMAL)
        elif fatal:
            roles = Counter(each.role for each in fatal if each.role is not None)
            words = "; ".join(each.words for each in fatal[:_MOST_NAMED])
            self._fail(f"{_counted(roles)} failed: {words}")
        elif spec.backoff_limit is not None and self.status.restarts > spec.backoff_limit:
            self._fail(
                f"it has been restarted {self.status.restarts} times, more than "
                f"backoffLimit={spec.backoff_limit}"
            )
        elif deadline_left_s(view) == 0.0:
            limit_s = spec.active_deadline_seconds
            self._fail(f"it was active for longer than activeDeadlineSeconds={limit_s}")

    def schedule(self, plan: Plan) -> None:
        """Write down the size of the job, and whether all of it has a place."""
        if self._view.replicas and self.status.start_time is None:
            self._update(start_time=time_text(self._now_s))
        asked, size = self._view.spec.worker_range[1], self.status.size
        if plan.size is not None and plan.size != size:
            if size is not None:
                message = f"from {size} to {plan.size} workers, as Worker.replicas={asked}"
                self._notes.append(Note("TFJobScaled", message))
            self._update(size=plan.size)
        if plan.size is not None:
            self._update(size_asked=asked)
        was = next((c.status for c in self.status.conditions if c.type == SCHEDULED), None)
        if plan.missing:
            if was is not ConditionStatus.FALSE:
                self._notes.append(Note("FailedScheduling", plan.missing, EventType.WARNING))
            self._set(SCHEDULED, ConditionStatus.FALSE, _UNSCHEDULABLE, plan.missing)
        elif was is not ConditionStatus.TRUE:
            message = f"all replicas have a node: {_where(plan)}" if plan.seats else "all are there"
            self._notes.append(Note("TFJobScheduled", message))
            self._set(SCHEDULED, ConditionStatus.TRUE, "TFJobScheduled", "all replicas have a node")

    def count(self) -> None:
        """Count the replicas of each role."""
        ended, counts = is_ended(self.status), {}
        for role in self._view.spec.roles:
            phases = Counter(each.phase for each in of_role(self._view.replicas, role))
            known = self.status.replica_statuses.get(role.value) or ReplicaStatus.model_validate({})
            # Those that are cleaned away once the job has ended have succeeded nevertheless.
            floor = known.succeeded if ended else 0
            counts[role.value] = ReplicaStatus(
                active=phases[Phase.RUNNING],
                succeeded=max(floor, phases[Phase.SUCCEEDED]),
                failed=known.failed,
            )
        workers = len(of_role(self._view.replicas, Role.WORKER))
        self._update(replica_statuses=counts, replicas=workers)

    def tell_phase(self) -> None:
        """Say whether the job runs, and whether something of it is made anew."""
        view, conditions = self._view, self.status.conditions
        hurt = [
            each
            for each in view.replicas
            if not each.is_deleted and each.phase in {Phase.FAILED, Phase.RESTARTING}
        ]
        if self._newly_failed:
            message = _restarting(view, self._newly_failed)
            self._notes.append(Note("TFJobRestarting", message, EventType.WARNING))
        if hurt:
            roles = Counter(each.role for each in hurt if each.role is not None)
            message = _restarting(view, roles)
            self._set(JobCondition.RESTARTING, ConditionStatus.TRUE, "TFJobRestarting", message)
        elif not _is_recovering(view, self.status):
            self._hold_no_longer(JobCondition.RESTARTING)
        is_running = any(each.phase is Phase.RUNNING for each in _deciding(view))
        if not is_running:
            self._hold_no_longer(JobCondition.RUNNING)
        elif not holds(conditions, JobCondition.RUNNING):
            self._hold(JobCondition.RUNNING, "TFJobRunning", f"TFJob {view.name} is running.")

    def _count_failed(self, role: Role) -> None:
        counts = dict(self.status.replica_statuses)
        known = counts.get(role.value) or ReplicaStatus.model_validate({})
        counts[role.value] = known.model_copy(update={"failed": known.failed + 1})
        self._update(replica_statuses=counts)

    def _fail(self, why: str) -> None:
        message = f"TFJob {self._view.name} has failed because {why}."
        self._end(JobCondition.FAILED, "TFJobFailed", message, EventType.WARNING)

    def _end(self, how: JobCondition, reason: str, message: str, type_: EventType) -> None:
        self._notes.append(Note(reason, message, type_))
        self._update(
            conditions=told(self.status.conditions, how, reason, message, self._now_s),
            completion_time=time_text(self._now_s),
        )

    def _hold(self, type_: JobCondition, reason: str, message: str) -> None:
        self._notes.append(Note(reason, message))
        self._set(type_, ConditionStatus.TRUE, reason, message)

    def _set(self, type_: str, is_so: ConditionStatus, reason: str, message: str) -> None:
        self._update(
            conditions=with_condition(
                self.status.conditions, type_, is_so, reason, message, self._now_s
            )
        )

    def _hold_no_longer(self, type_: JobCondition) -> None:
        conditions: tuple[Condition, ...] = self.status.conditions
        self._update(conditions=no_longer(conditions, type_, self._now_s))

    def _update(self, **changes: Any) -> None:
        self.status = self.status.model_copy(update=changes)


_MOST_NAMED: Final = 3


def _deciding(view: View) -> list[Replica]:
    """Those by which the job runs: the chief, or the workers where there is none."""
    chiefs = [r for role in (Role.CHIEF, Role.MASTER) for r in of_role(view.replicas, role)]
    has_chief = bool({Role.CHIEF, Role.MASTER} & view.spec.roles.keys())
    return chiefs if has_chief else of_role(view.replicas, Role.WORKER)


def _is_recovering(view: View, status: TFJobStatus) -> bool:
    """Whether a replica that was replaced does not run again."""
    well = {
        each.name
        for each in view.replicas
        if each.phase in {Phase.RUNNING, Phase.SUCCEEDED} and not each.is_deleted
    }
    wanted = wanted_of(view.name, view.spec, status.size or 0)
    return any(name in wanted and name not in well for name in status.failures)


def _has_succeeded(view: View) -> bool:
    """Whether the chief has; without one worker 0, or every worker: then worker 0 is among them."""
    return any(each.index == 0 and each.has_exited_well for each in _deciding(view))


def _end_note(namespace: str, replica: Replica) -> Note:
    where = f"Pod: {namespace}.{replica.name}"
    if replica.cause is not None:
        return Note("ReplicaTaken", f"{where} was taken: {replica.cause}", EventType.WARNING)
    if replica.code is None:
        return Note("ReplicaFailed", f"{where} ended without an exit code", EventType.WARNING)
    return Note("ExitedWithCode", f"{where} exited with code {replica.code}")


def _restarting(view: View, roles: "Counter[Role]") -> str:
    return f"TFJob {view.name} is restarting because {_counted(roles)} failed."


def _counted(roles: "Counter[Role]") -> str:
    return ", ".join(f"{number} {role} replica(s)" for role, number in sorted(roles.items()))


def _where(plan: Plan) -> str:
    """Places for people: `node-a: 1 ps, 4 worker`."""
    nodes: dict[str, Counter[str]] = {}
    for name, seat in plan.seats.items():
        nodes.setdefault(seat.node, Counter())[plan.wanted[name][0].task_type] += 1
    return "; ".join(
        f"{node}: " + ", ".join(f"{number} {role}" for role, number in roles.items())
        for node, roles in nodes.items()
    )


def warnings_of(job: Manifest, spec: TFJobSpec, unknown: Sequence[str]) -> list[Note]:
    """Events to be told once of each spec.

    Args:
        job: The object.
        spec: Its own.
        unknown: Fields that mean nothing here, by their paths.
    """
    notes = []
    if unknown:
        message = f"kept and without effect: {', '.join(unknown)}; is one of them misspelt?"
        notes.append(Note("UnknownFields", message, EventType.WARNING))
    if queue := queue_of(job):
        message = (
            f"{QUEUE_LABEL}={queue}: this kind gives its pods their nodes itself, so no queue "
            "holds them"
        )
        notes.append(Note("QueueIgnored", message, EventType.WARNING))
    if ignored := list(_ignored(spec)):
        message = (
            f"without effect, as this kind gives its pods their nodes itself: {', '.join(ignored)}"
        )
        notes.append(Note("PlacementRulesIgnored", message, EventType.WARNING))
    if replaced := list(_replaced(spec)):
        message = f"replaced by what this job is to TensorFlow: {', '.join(replaced)}"
        notes.append(Note("EnvironmentReplaced", message, EventType.WARNING))
    return notes


def _ignored(spec: TFJobSpec) -> Iterator[str]:
    for role, replicas in spec.roles.items():
        pod, at = replicas.template["spec"], f"spec.tfReplicaSpecs.{role}.template.spec"
        yield from (f"{at}.{field}" for field in _OF_SCHEDULERS if pod.get(field))
        affinity = pod.get("affinity") or {}
        yield from (f"{at}.affinity.{field}" for field in _OF_AFFINITY if affinity.get(field))


def _replaced(spec: TFJobSpec) -> Iterator[str]:
    for role, replicas in spec.roles.items():
        for container in replicas.template["spec"]["containers"]:
            if any(each["name"] == TF_CONFIG for each in container.get("env") or ()):
                yield f"{TF_CONFIG} of {role}'s container {container['name']}"


# TFJob: places PS and workers, tells TensorFlow of its cluster, and knows the end.
#
# A pass either tells or acts. What is seen is written down first, and only a status that says it
# all is followed by actions: so a failed pod is counted before it is removed, and once, whenever
# the controller dies; and a job whose pods the cluster refuses to make still tells how it stands.
#
# Jobs are placed one by one, each in what the pods of all leave free when it is asked; or where
# their status says, which a scheduler of all of them has written.


LOOK_FOR_ROOM_S: Final = 5.0
"""How often a job looks for room that waits for it: room comes from pods and nodes of others."""


class TFJobs:
    """The kind TFJob, with its scheduler."""

    resource = RESOURCE
    unwatched = ()
    looks_at = ()
    component = "tfjob-controller"
    sees_cluster = True

    def __init__(self, has_kubeshare: bool = False, *, is_planned: bool = False) -> None:
        """Keep what is known of the cluster.

        Args:
            has_kubeshare: Whether it knows SharePods; where it does not, they cannot be watched.
            is_planned: Whether a scheduler of all jobs together writes their sizes and places
                into their status; else each is placed where it fits first.
        """
        self._has_kubeshare, self._is_planned = has_kubeshare, is_planned
        self._rooms = Rooms()
        self.children: Sequence[Resource] = (PODS, SERVICES)
        if has_kubeshare:
            self.children = (PODS, SERVICES, SHARE_PODS)

    def job_of(self, resource: Resource, child: Manifest) -> str | None:
        """The name of the job that has these labels on its children."""
        labels = child["metadata"].get("labels") or {}
        if resource not in self.children or labels.get(GROUP_LABEL) != GROUP:
            return None
        return labels.get(JOB_LABEL)

    def reconcile(self, observed: Observed) -> Outcome:
        """Tell what has changed, or do what is left to be done."""
        job = observed.job
        if is_deleted(job):
            # What it controls is Kubernetes' to remove.
            return Outcome(status=job.get("status") or {})
        before, reading = read_status(job), read_tf_job(job)
        if reading.spec is None:
            return _told(refused(before, reading.problem, observed.now_s))
        replicas = replicas_of(observed)
        view = View(
            observed,
            reading.spec,
            before,
            replicas,
            self._has_kubeshare,
            self._rooms,
            self._is_planned,
        )
        account = account_of(view, reading.unknown)
        if account.status != before:
            return _told(account)
        return Outcome(
            actions=tuple(_clean(view) if account.plan is None else _work(view, account.plan)),
            status=_written(account.status),
            again_in_s=_again_in_s(view, account.plan),
        )

    def rejected(self, observed: Observed, rejection: Rejection) -> Outcome | None:
        """A job whose replicas cannot be made is failed, unless it runs."""
        before = read_status(observed.job)
        labels = rejection.create.manifest["metadata"].get("labels") or {}
        roles = [role for role in Role if role.task_type == labels.get(TYPE_LABEL)]
        template = f"spec.tfReplicaSpecs.{roles[0].value}.template" if roles else ""
        is_pod = rejection.create.resource == PODS
        problem = words_of(rejection, template if is_pod else "")
        account = rejected(before, name_of(observed.job), problem, observed.now_s)
        return None if account is None else _told(account)


def _told(account: Account) -> Outcome:
    """A pass that acts follows, as the job has another status then."""
    return Outcome(status=_written(account.status), notes=account.notes)


def _written(status: TFJobStatus) -> Manifest:
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def _work(view: View, plan: Plan) -> Iterator[Action]:
    """Remove what is too many and what has failed, then make what is lacking and has a place."""
    if plan.size is None:
        return
    surplus = [each for each in view.replicas if each.name not in plan.wanted]
    for replica in sorted(surplus, key=lambda each: -each.index):
        yield from _delete(replica)
    for replica in view.replicas:
        if replica.has_failed and replica.name in plan.wanted and not _pause_left_s(view, replica):
            yield from _delete(replica)
    services = view.observed.children.get(SERVICES, ())
    for service in services:
        if name_of(service) not in plan.wanted:
            yield from _delete_service(service)
    there = {name_of(service) for service in services}
    placed = {replica.name for replica in view.replicas} | plan.seats.keys()
    for name, (role, index) in plan.wanted.items():
        if name in placed and name not in there:
            yield service_of(view.name, view.spec, role, index)
    for name, seat in plan.seats.items():
        role, index = plan.wanted[name]
        yield pod_of(view.name, view.namespace, view.spec, role, index, seat)


def _clean(view: View) -> Iterator[Action]:
    """Remove what is to go with the end of the job, and then the job."""
    policy = view.spec.clean_pod_policy
    kept = set()
    for replica in view.replicas:
        goes = policy is CleanPodPolicy.ALL or (
            policy is CleanPodPolicy.RUNNING and not replica.is_over
        )
        if goes:
            yield from _delete(replica)
        else:
            kept.add(replica.name)
    for service in view.observed.children.get(SERVICES, ()):
        if policy is not CleanPodPolicy.NONE and name_of(service) not in kept:
            yield from _delete_service(service)
    if _removal_in_s(view) == 0.0:
        job = view.observed.job
        yield Delete(RESOURCE, view.name, uid_of(job))


def _delete(replica: Replica) -> Iterator[Delete]:
    if not replica.is_deleted:
        is_pod = replica.resource is PODS
        reason, what = ("SuccessfulDeletePod", "pod") if is_pod else _SHARE_POD_DELETED
        note = Note(reason, f"Deleted {what}: {replica.name}")
        yield Delete(replica.resource, replica.name, replica.uid, note=note)


_SHARE_POD_DELETED: Final = ("SuccessfulDeleteSharePod", "SharePod")


def _delete_service(service: Manifest) -> Iterator[Delete]:
    if not is_deleted(service):
        name = name_of(service)
        note = Note("SuccessfulDeleteService", f"Deleted service: {name}")
        yield Delete(SERVICES, name, uid_of(service), note=note)


def _pause_left_s(view: View, replica: Replica) -> float:
    """Seconds until a failed replica is replaced; those that fail at once are not at once."""
    row = view.before.failures.get(replica.name, 1)
    return max(0.0, replica.ended_s + pause_s(row) - view.observed.now_s)


def _removal_in_s(view: View) -> float | None:
    completed = view.before.completion_time
    if completed is None:
        return None
    ttl_s = view.spec.ttl_seconds_after_finished
    return removal_in_s(seconds_of(completed), ttl_s, view.observed.now_s)


def _again_in_s(view: View, plan: Plan | None) -> float | None:
    """When something follows from the time alone."""
    if is_ended(view.before):
        return _removal_in_s(view) or None
    assert plan is not None, "a job that has not ended has a plan"
    deadline_s = deadline_left_s(view)
    pauses = [_pause_left_s(view, each) or None for each in view.replicas if each.has_failed]
    room_s = LOOK_FOR_ROOM_S if plan.missing else None
    return soonest(deadline_s or None, room_s, *pauses)
