"""The plays of each kind, see `support.plays`."""

import random

from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.platforms.kubernetes.objects import names
from elastic.platforms.kubernetes.objects.manifests import control_of
from elastic.spec.status import JobPhase
from support.plays import CRASHED, KILLED, NAMESPACE, Play, index_of
from support.stand_in_master import StandInMaster
from support.train_job_world import resource

NODES = tuple(f"node-{number}" for number in range(4))


class ElasticPlay(Play):
    """Workers between 2 and 5; every second job meets at a store of its own."""

    resource = elastic_job.RESOURCE
    faults = ("crash", "kill", "lose", "scale")
    most = 5

    def _spec(self):
        self._has_store = self._rng.random() < 0.5
        workers = {"replicas": 3, "restartPolicy": "ExitCode", "template": _template("worker")}
        spec = {"minReplicas": 2, "maxReplicas": self.most, "replicaSpecs": {"Worker": workers}}
        spec["cleanPodPolicy"] = self._rng.choice(["None", "Running", "All"])
        if not self._ends_well:
            spec |= {"minReplicas": 3, "maxReplicas": 3, "backoffLimit": 0}
        return spec if self._has_store else spec | {"rdzvEndpoint": "etcd-service:2379"}

    def _first_size(self):
        self.restarts = {"restartCount": 0, "freeRestartCount": 0}
        return 3

    def _made_at_first(self):
        names = [f"{self.name}-worker-{index}" for index in range(3)]
        names += [f"{self.name}-rdzv"] if self._has_store else []
        return {(plural, name): 1 for plural in ("pods", "services") for name in names}

    def is_whole(self):
        there = sorted(index_of(pod) for pod in self.running() if self._is_worker(pod))
        return there == list(range(self.sizes[-1][1])) and self.has_services()

    def _targets(self):
        """Never the last one that runs: it closes the rendezvous, which is then made anew."""
        targets = super()._targets()
        return targets if len(targets) > 1 else []

    def _crash(self):
        self.restarts["restartCount"] += 1
        return self._fail_one(CRASHED)

    def _kill(self):
        self.restarts["freeRestartCount"] += 1
        return self._fail_one(KILLED)

    def _scale(self):
        before = self.sizes[-1][1]
        size = self._rng.choice([each for each in range(2, self.most + 1) if each != before])
        for index in range(before, size):
            self.made["pods", f"{self.name}-worker-{index}"] += 1
            self.made["services", f"{self.name}-worker-{index}"] += 1
        return self._resize(size, {"replicaSpecs": {"Worker": {"replicas": size}}})

    def _finish(self):
        self._over()
        for pod in self._targets():
            self._end(pod)
        return "all workers end well"

    def _break(self):
        self._over()
        return self._end(self._rng.choice(self._targets()), CRASHED)

    def problems(self):
        """What is not as it is to be, now that it is over."""
        status = self.status
        wanted = {"phase": "Succeeded" if self._ends_well else "Failed", **self.restarts}
        yield from _differences(self, wanted, {key: status.get(key) for key in wanted})
        if self._ends_well:
            counted = status.get("replicaStatuses", {}).get("Worker", {}).get("succeeded")
            yield from _differences(self, self.sizes[-1][1], counted)

    def is_over(self):
        return self.status.get("phase") in ("Succeeded", "Failed")


class BrokenElasticPlay(ElasticPlay):
    """One that has no replacement to spend."""

    faults = ("lose",)


class TFPlay(Play):
    """Workers between 1 and 4, and a parameter server, placed by the controller."""

    resource = tf_job.RESOURCE
    faults = ("crash", "evict", "lose", "scale")
    most = 4
    policy = "OnFailure"
    chiefs = ()

    def _spec(self):
        roles = {"PS": self._role("PS", 1), "Worker": self._role("Worker", 2)}
        roles |= {role: self._role(role, 1) for role in self.chiefs}
        spec = {"tfReplicaSpecs": roles, "min-instances": 1, "max-instances": self.most}
        return spec | {"cleanPodPolicy": self._rng.choice(["None", "Running", "All"])}

    def _role(self, role, count):
        template = _template("tensorflow")
        return {"replicas": count, "restartPolicy": self.policy, "template": template}

    def _first_size(self):
        self.restarts = 0
        return 2

    def _made_at_first(self):
        names = [f"{self.name}-ps-0", *(f"{self.name}-worker-{index}" for index in range(2))]
        names += [f"{self.name}-{role.lower()}-0" for role in self.chiefs]
        return {(plural, name): 1 for plural in ("pods", "services") for name in names}

    def is_whole(self):
        wanted = self.sizes[-1][1] + 1 + len(self.chiefs)
        return len(self.running()) == wanted and self.has_services()

    def _targets(self):
        return self.running()

    def _crash(self):
        self.restarts += 1
        return self._fail_one(CRASHED)

    def _kill(self):
        return self._fail_one(KILLED)

    def _evict(self):
        return self._fail_one(CRASHED, "Evicted")

    def _scale(self):
        before = self.sizes[-1][1]
        size = self._rng.choice([each for each in range(1, self.most + 1) if each != before])
        for index in range(before, size):
            self.made["pods", f"{self.name}-worker-{index}"] += 1
            self.made["services", f"{self.name}-worker-{index}"] += 1
        return self._resize(size, {"tfReplicaSpecs": {"Worker": {"replicas": size}}})

    def _finish(self):
        self._over()
        name = f"{self.name}-{'chief' if self.chiefs else 'worker'}-0"
        return self._end(next(p for p in self.running() if p["metadata"]["name"] == name))

    def _break(self):
        self._over()
        return self._end(self._rng.choice(self.running()), CRASHED)

    def _ended(self):
        conditions = self.status.get("conditions", ())
        held = {each["type"] for each in conditions if each["status"] == "True"}
        return held & {"Succeeded", "Failed"}

    def problems(self):
        """What is not as it is to be, now that it is over."""
        yield from _differences(self, {"Succeeded" if self._ends_well else "Failed"}, self._ended())
        yield from _differences(self, self.restarts + (not self._ends_well),
                                self.status.get("restarts"))  # fmt: skip

    def is_over(self):
        return bool(self._ended())


class ChiefTFPlay(TFPlay):
    """A chief decides, and a signal is the cluster's doing."""

    faults = ("kill", "evict", "lose", "scale")
    policy = "ExitCode"
    chiefs = ("Chief",)


class BrokenTFPlay(TFPlay):
    """One whose first failure ends it."""

    faults = ("lose", "scale")
    policy = "Never"


class TrainingPlay(Play):
    """A master, two parameter servers and two trainers, who all have a part in each step."""

    resource = training_job.RESOURCE
    faults = ("lose",)
    is_tolerant = False

    def _spec(self):
        resources = {"requests": {"cpu": "100m", "memory": "100Mi"}}
        return {
            "fault_tolerant": self.is_tolerant,
            "master": {"resources": resources},
            "pserver": {"min-instance": 2, "resources": resources},
            "trainer": {"min-instance": 2, "resources": resources, "entrypoint": "train"},
        }

    def _first_size(self):
        return 2

    def _made_at_first(self):
        roles = {"master": 1, "pserver": 2, "trainer": 2}
        made = {("pods", f"{self.name}-{role}"): count for role, count in roles.items()}
        made |= {("replicasets", f"{self.name}-{role}"): 1 for role in ("master", "pserver")}
        return made | {("jobs", f"{self.name}-trainer"): 1}

    def is_whole(self):
        there = sorted(self._key(pod).rpartition("-")[2] for pod in self.running())
        trainers = ["trainer"] * self.sizes[-1][1]
        return there == ["master", "pserver", "pserver", *trainers]

    def is_own(self, pod):
        labels = pod["metadata"].get("labels", {})
        roles = ("paddle-job", "paddle-job-master", "paddle-job-pserver")
        return self.name in [labels.get(role) for role in roles]

    def _is_worker(self, pod):
        return "paddle-job" in pod["metadata"]["labels"]

    def _key(self, pod):
        return pod["metadata"]["name"].rpartition("-")[0]

    def _targets(self):
        """A job that is still being created has all that it has because of an order."""
        return self.running() if self.is_whole() else []

    def _crash(self):
        trainers = [pod for pod in self.running() if self._is_worker(pod)]
        self.made["pods", f"{self.name}-trainer"] += 1
        return self._end(self._rng.choice(trainers), CRASHED)

    def _scale(self):
        before = self.sizes[-1][1]
        # The failure of a single trainer would be that of all.
        size = self._rng.choice([each for each in range(2, 5) if each != before])
        self.made["pods", f"{self.name}-trainer"] += max(0, size - before)
        return self._resize(size, {"trainer": {"min-instance": size}})

    def _finish(self):
        self._over()
        for pod in self.running():
            if self._is_worker(pod):
                self._end(pod)
        return "all trainers end well"

    def _break(self):
        # Kubernetes replaces it before anybody can tell it that the job is over.
        self.made["pods", f"{self.name}-trainer"] += 1
        self._over()
        return self._end(next(p for p in self.running() if self._is_worker(p)), CRASHED)

    def problems(self):
        """What is not as it is to be, now that it is over."""
        yield from _differences(
            self, "succeeded" if self._ends_well else "failed", self.status.get("phase")
        )

    def is_over(self):
        return self.status.get("phase") in ("succeeded", "failed")


class TolerantTrainingPlay(TrainingPlay):
    """Trainers come and go."""

    faults = ("crash", "lose", "scale")
    is_tolerant = True


class TrainPlay(Play):
    """A job of our own, whose master the play stands in for: it publishes, and has two workers."""

    resource = elastic_train_job.RESOURCE
    faults = ("lose", "scale")
    num_launched = 2

    def __init__(self, cluster, name, rng, num_faults, ends_well=True):
        super().__init__(cluster, name, rng, num_faults, ends_well)
        self._steps.insert(1, self._launch)
        self._num_masters = 1
        self._stand_in = StandInMaster(cluster.objects, NAMESPACE, name)

    @property
    def _master(self):
        return names.master_name(self.name)

    def _spec(self):
        return resource(self.name)["spec"]

    def _first_size(self):
        return 4

    def _made_at_first(self):
        made = {
            "pods": [self._master],
            "services": [self._master],
            "configmaps": [names.record_name(self.name), names.status_name(self.name)],
            "secrets": [names.token_name(self.name)],
            "persistentvolumeclaims": [f"elastic-{self.name}-state"],
        }
        return {(plural, name): 1 for plural, all_ in made.items() for name in all_}

    def is_own(self, pod):
        return pod["metadata"].get("labels", {}).get(names.TRAIN_JOB_LABEL) == self.name

    def _is_worker(self, pod):
        return pod["metadata"]["name"] != self._master

    def is_whole(self):
        """Its pods run, and what was asked for last has reached its record."""
        num_workers = 0 if self._launch in self._steps else self.num_launched
        there = self.running()
        is_all = len(there) == 1 + num_workers and not all(map(self._is_worker, there))
        return is_all and self._asked() == self._scaled()

    def _scaled(self):
        """The number of workers that was asked for; None where nobody has."""
        return self.sizes[-1][1] if len(self.sizes) > 1 else None

    def _asked(self):
        """What of it is in the job's record."""
        return control_of(self._stand_in.record()).num_workers

    def _targets(self):
        """Those that its controller looks after: who launches workers is its master."""
        return [pod for pod in self.running() if not self._is_worker(pod)]

    def _publish(self, phase, **more):
        self._stand_in.publish(phase, master_restarts=self._num_masters - 1, **more)

    def _launch(self):
        """Its master begins."""
        for pod in self._stand_in.begin(self.num_launched):
            self.made["pods", pod] += 1
        return "its master launches two workers"

    def _lose(self):
        """The next master tells of itself when it begins, as one does."""
        told = super()._lose()
        self._num_masters += 1
        self._publish(JobPhase.RUNNING)
        return told

    def _scale(self):
        size = self._rng.choice([each for each in range(1, 5) if each != self.sizes[-1][1]])
        return self._resize(size, {"job": {"num_workers": size}})

    def _finish(self):
        return self._tell_end(JobPhase.SUCCEEDED, 0)

    def _break(self):
        return self._tell_end(JobPhase.FAILED, CRASHED)

    def _tell_end(self, phase, code):
        self._over()
        self._publish(phase, ended_s=2.0)
        [master] = self._targets()
        return self._end(master, code)

    def problems(self):
        """What is not as it is to be, now that it is over."""
        status = self.status
        wanted = {"phase": "Succeeded" if self._ends_well else "Failed"}
        wanted["master_restarts"] = self._num_masters - 1
        yield from _differences(self, wanted, {key: status.get(key, 0) for key in wanted})
        yield from _differences(self, self._scaled(), self._asked())

    def is_over(self):
        return self.status.get("phase") in ("Succeeded", "Failed")


CAST = (
    ("elastic", ElasticPlay, True, 5),
    ("broken-elastic", BrokenElasticPlay, False, 1),
    ("tf", TFPlay, True, 3),
    ("chief-tf", ChiefTFPlay, True, 1),
    ("broken-tf", BrokenTFPlay, False, 1),
    ("tolerant-training", TolerantTrainingPlay, True, 3),
    ("training", TrainingPlay, True, 2),
    ("broken-training", TrainingPlay, False, 1),
    ("train", TrainPlay, True, 2),
    ("broken-train", TrainPlay, False, 1),
)
"""Twenty jobs: how they are called, their plays, whether they end well, and how many there are."""


def cast(cluster, seed, num_faults, counts=None):
    """All of them, each with a random source of its own.

    Args:
        num_faults: What happens to each between its begin and its end.
        counts: How many of some of them, by what they are called; all of `CAST` where left out.
    """
    return [
        play(
            cluster, f"{name}-{number}", random.Random(f"{seed} {name} {number}"), num_faults, good
        )
        for name, play, good, count in CAST
        for number in range(count if counts is None else counts.get(name, 0))
    ]


def _template(container):
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    described = {"name": container, "image": "train:1", "resources": resources}
    return {"spec": {"containers": [described]}}


def _differences(play, wanted, found):
    if wanted != found:
        yield f"{play.name}: {found} in the place of {wanted}"
