"""What a cluster is once a plan has been carried out, at the same moment."""

from collections.abc import Mapping
from dataclasses import replace

from elastic.policy.cluster.plan import Decision, Plan
from elastic.policy.cluster.snapshot import Group, Job, JobPhase, Placement, Snapshot


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The snapshot with all decisions done and their times noted."""
    if not plan.decisions:
        return snapshot
    by_job = {decision.job: decision for decision in plan.decisions}
    jobs = tuple(
        _changed(job, by_job[job.key], snapshot.now_s) if job.key in by_job else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=jobs, last_change_s=snapshot.now_s)


def _changed(job: Job, decision: Decision, now_s: float) -> Job:
    ps = job.ps
    if ps is not None and decision.ps_placement is not None:
        ps = _placed(ps, decision.ps_replicas, decision.ps_placement, decision.cards)
    others = tuple(
        _placed(group, None, decision.other_placements[group.role], decision.cards)
        if group.role in decision.other_placements
        else group
        for group in job.others
    )
    workers = _placed(job.workers, decision.replicas, decision.placement, decision.cards)
    telling = job.telling
    if decision.global_batch_size is not None:
        telling = replace(telling, global_batch_size=decision.global_batch_size)
    changed = replace(
        job, workers=workers, ps=ps, others=others, telling=telling, last_scaled_s=now_s
    )
    if changed.is_waiting:
        return replace(changed, phase=JobPhase.WAITING)
    return replace(changed, phase=JobPhase.RUNNING, waiting_since_s=None)


def _placed(
    group: Group,
    replicas: int | None,
    placement: Placement | None,
    cards: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> Group:
    if placement is None:
        return group if replicas is None else replace(group, replicas=replicas)
    count = sum(placement.values()) if replicas is None else replicas
    return replace(
        group, replicas=count, placement=placement, cards=cards.get(group.role, group.cards)
    )
