"""Snapshots of small clusters, and what is decided about them."""

from elastic.policy.cluster import Group, Job, JobPhase, Node, Pod, Share, Snapshot, needed_of


def amounts(cpu=None, memory=None, gpu=None):
    """In quantities; what is None is not there."""
    written = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpu}
    return needed_of({name: each for name, each in written.items() if each is not None})


def node(name, cpu=8, memory="64Gi", gpu=None, **more):
    return Node(name, amounts(cpu, memory, gpu), **more)


def pod(on, cpu=1, memory=None, gpu=None, **more):
    needs = amounts(cpu, memory, gpu)
    return Pod(on, needs, needs, **more)


def group(low, high, placement=None, cpu=1, memory="1Gi", gpu=None, limits=None, **more):
    """Replicas that are all placed, and as many as that if it is not said otherwise."""
    placement = placement or {}
    needs = amounts(cpu, memory, gpu)
    more.setdefault("replicas", sum(placement.values()))
    return Group(low, high, requests=needs, limits=limits or needs, placement=placement, **more)


def job(name, low, high, placement=None, kind="TrainingJob", submitted_s=0.0, **more):
    """A job whose `ps`, `others`, times and `phase` are in `more`, as what its workers have."""
    own = {key: more.pop(key) for key in _OF_JOB if key in more}
    workers = group(low, high, placement, **more)
    default = JobPhase.RUNNING if workers.placed >= low else JobPhase.WAITING
    return Job(name, "team", kind, workers, submitted_s, own.pop("phase", default), **own)


_OF_JOB = ("ps", "others", "last_scaled_s", "waiting_since_s", "phase", "telling")


def key(name, kind="TrainingJob"):
    return f"{kind}/team/{name}"


def snapshot(nodes, jobs, pods=(), now_s=1000.0, **more):
    return Snapshot(now_s, tuple(nodes), tuple(jobs), tuple(pods), **more)


def sizes(snapshot):
    """How many workers each job has on nodes."""
    return {each.name: each.workers.placed for each in snapshot.jobs}


def decided(plan):
    """The size that each decision gives, by the name of the job."""
    return {each.job.rpartition("/")[2]: each.replicas for each in plan.decisions}


def reason(plan, name):
    [found] = [each.reason for each in plan.decisions if each.job.endswith(f"/{name}")]
    return found


def note(plan, name):
    [found] = [each.text for each in plan.notes if each.job.endswith(f"/{name}")]
    return found


def share(milli, memory_bytes=0):
    return Share(milli, memory_bytes)
