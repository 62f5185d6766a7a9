"""Jobs of all kinds, what happens to each, and what is to become of it then.

A `Play` is one job and its steps, in their order: it is submitted, some of its pods fail or are
lost, it is scaled, it ends. Each step says what there will have been made once the play is over, so
that whatever a controller makes or removes besides is found.
"""

from collections import Counter

from support.api_objects import Place

NAMESPACE = "team"
RUNNING = "Running"
KILLED = 137
CRASHED = 1


class Play:
    """One job. The subclasses know how their kind names its pods.

    Attributes:
        made: How many objects of each type and name there will have been; trainers, whose names are
            made up, by the name of their Job.
        sizes: Of the workers, each with the version of the objects from which on it is so.
        ended_version: From which on the job is over, and what is left of it may be removed.
        lost: Uids of healthy pods that were deleted by somebody else than a controller.
    """

    faults = ()
    resource = None

    def __init__(self, cluster, name, rng, num_faults, ends_well=True):
        self.name = name
        self.made = Counter()
        self.sizes = []
        self.ended_version = None
        self.lost = set()
        self._cluster = cluster
        self._rng = rng
        self._ends_well = ends_well
        self._failures = Counter()
        faults = [rng.choice(self.faults) for _ in range(num_faults)] if self.faults else []
        self._steps = [self._submit, *faults, self._finish if ends_well else self._break]
        self._has_scaled = False

    @property
    def num_left(self):
        return len(self._steps)

    def is_due(self):
        """Whether the next step can be taken now."""
        step = self._steps[0]
        if step == self._submit:
            return True
        needs_all = self._has_scaled or step in (self._finish, self._break, "scale")
        return self.is_whole() if needs_all else bool(self._targets())

    def step(self):
        """Take the next step; returns what it was, for people."""
        step = self._steps.pop(0)
        self._has_scaled = step == "scale"
        told = (getattr(self, f"_{step}") if isinstance(step, str) else step)()
        return f"{self.name}: {told}"

    # -- what there is -------------------------------------------------------------------------

    @property
    def job(self):
        group, version, plural = self.resource.group, self.resource.version, self.resource.plural
        return self._cluster.objects.get(Place(group, version, plural, NAMESPACE, self.name))

    @property
    def status(self):
        return self.job.get("status") or {}

    def pods(self):
        items, _ = self._cluster.objects.list(Place("", "v1", "pods", NAMESPACE), self.is_own)
        return items

    def running(self):
        return [pod for pod in self.pods() if _runs(pod)]

    def has_services(self):
        """Whether each of its pods has one of its name, and nobody else has: they come and go by
        writes of their own.
        """
        place = Place("", "v1", "services", NAMESPACE)
        services, _ = self._cluster.objects.list(place, self.is_own)
        names = [{each["metadata"]["name"] for each in items} for items in (services, self.pods())]
        return names[0] == names[1]

    def size_at(self, version):
        """How many workers there were to be when an object had a version."""
        return [size for since, size in self.sizes if since <= version][-1]

    # -- steps that all kinds have -------------------------------------------------------------

    def _submit(self):
        place = Place(self.resource.group, self.resource.version, self.resource.plural, NAMESPACE)
        manifest = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        manifest |= {"metadata": {"name": self.name}, "spec": self._spec()}
        self.sizes.append((0, self._first_size()))
        self.made.update(self._made_at_first())
        self._cluster.objects.create(place, manifest)
        return "submitted"

    def _lose(self):
        """Somebody deletes a healthy pod."""
        pod = self._rng.choice(self._targets())
        self.lost.add(pod["metadata"]["uid"])
        self.made["pods", self._key(pod)] += 1
        name = pod["metadata"]["name"]
        self._cluster.objects.delete(Place("", "v1", "pods", NAMESPACE, name), {})
        return f"{name} is deleted"

    def _end(self, pod, code=0, reason=""):
        name = pod["metadata"]["name"]
        self._cluster.kubelet.end(NAMESPACE, name, code, reason)
        return f"{name} ends with {reason or code}"

    def _fail_one(self, code, reason=""):
        """A pod fails that will be replaced, one of those that have failed least often."""
        targets = self._targets()
        fewest = min(self._failures[self._key(pod)] for pod in targets)
        pod = self._rng.choice([p for p in targets if self._failures[self._key(p)] == fewest])
        self._failures[self._key(pod)] += 1
        self.made["pods", self._key(pod)] += 1
        return self._end(pod, code, reason)

    def _resize(self, size, change):
        place = Place(
            self.resource.group, self.resource.version, self.resource.plural, NAMESPACE, self.name
        )
        with self._cluster.objects.lock:
            self.sizes.append((self._cluster.objects.version, size))
            self._cluster.objects.merge(place, {"spec": change})
        return f"scaled to {size}"

    def _over(self):
        self.ended_version = self._cluster.objects.version

    def _key(self, pod):
        return pod["metadata"]["name"]

    def _targets(self):
        return [pod for pod in self.running() if self._is_worker(pod)]

    # -- what kinds may have otherwise -----------------------------------------------------------

    def is_own(self, pod):
        """Whether a pod is of this job."""
        return pod["metadata"].get("labels", {}).get("job-name") == self.name

    def _is_worker(self, pod):
        return pod["metadata"]["labels"]["replica-type"] == "worker"


def index_of(pod):
    """Of a worker, by its label; None for all others."""
    labels = pod["metadata"].get("labels", {})
    return int(labels["replica-index"]) if labels.get("replica-type") == "worker" else None


def _runs(pod):
    return pod["status"]["phase"] == RUNNING and "deletionTimestamp" not in pod["metadata"]
