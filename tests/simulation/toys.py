"""Small clusters, workloads and policies, by which the engine is seen to do what it is told."""

from elastic.policy.cluster import Decision, Group, Job, JobPhase, Node, Note, Plan
from elastic.simulation.workload import Amdahl, Constant, Submission, Work

CPU = {"cpu": 1000}


def nodes(count=1, cpu=4, **resources):
    return [Node(f"n{index}", {"cpu": cpu * 1000, **resources}) for index in range(count)]


def job(name, at_s=0.0, low=1, high=1, asked=None, **parts):
    workers = Group(
        low, high, 0, parts.pop("requests", CPU), CPU, share=parts.pop("share", None), asked=asked
    )
    kind = parts.pop("kind", "TrainingJob")
    return Job(name, "d", kind, workers, at_s, JobPhase.WAITING, waiting_since_s=at_s, **parts)


def holding(name, at_s=0.0, hold_s=10.0, **parts):
    return Submission(job(name, at_s, **parts), Work(hold_s, Constant()))


def working(name, at_s=0.0, work_s=10.0, serial=0.0, rescale_s=None, tells="nothing", **parts):
    from elastic.simulation.workload import Tells

    work = Work(work_s, Amdahl(serial), Tells(tells))
    return Submission(job(name, at_s, **parts), work, rescale_s)


class ByTable:
    """Decides what is written for a moment, and nothing else; remembers what it was shown."""

    def __init__(self, table):
        self.table = dict(table)
        self.snapshots = []

    def plan(self, snapshot):
        self.snapshots.append(snapshot)
        found = self.table.pop(snapshot.now_s, ())
        return Plan(
            tuple(each for each in found if isinstance(each, Decision)),
            tuple(each for each in found if isinstance(each, Note)),
        )


class StartsAtMin:
    """Starts who waits with the least, wherever Kubernetes has room."""

    def plan(self, snapshot):
        return Plan(
            tuple(
                Decision(each.key, each.workers.min, "to begin")
                for each in snapshot.jobs
                if each.phase is JobPhase.WAITING and not each.workers.replicas
            )
        )
