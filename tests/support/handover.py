"""A cluster in memory in which two real controllers keep jobs, and an account of all that is done.

The account is kept by the API server: who asked for what, and each change of each object. What may
not happen is found in it afterwards, see `Account.problems`.
"""

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import contextmanager

from elastic.platforms.kubernetes.api.resources import SECRETS
from support.api_objects import Place
from support.api_server_in_memory import NAMESPACE, VERBS, InMemoryApi
from support.controllers import Deployment, wait_for
from support.fitting_kubelet import FittingKubelet
from support.kubelet_in_memory import Kubelet
from support.plays import index_of
from support.plays_of_kinds import NODES, ElasticPlay, TFPlay, TrainingPlay, TrainPlay
from support.workloads_in_memory import BATCH_JOBS, PODS, REPLICA_SETS, Workloads

CORE = ("services", "configmaps", "secrets", "persistentvolumeclaims")
MADE_TYPES = (PODS, REPLICA_SETS, BATCH_JOBS, *(Place("", "v1", each) for each in CORE))
START_S = 0.4
"""A pod takes so long to start at the most."""

TAKEOVER_S = 15.0
PATIENCE_S = 60.0


class Moment:
    """The so-manieth write of a sort: it is carried out, and whoever asked for it hears no answer.

    What is counted in a status and what is made or removed thereafter are two writes: the moments
    between them are the ones that matter.
    """

    def __init__(self, rng):
        self.sort = rng.choice(["any", "status", "create", "delete"])
        self._left = rng.randrange(15 if self.sort == "any" else 3)

    def has_come(self, asked):
        """Whether this write is the one."""
        if self.sort in ("any", asked.place.part or asked.verb):
            self._left -= 1
        return self._left < 0

    def __str__(self):
        return f"at the {self.sort} after {self._left}"


class Account:
    """What the controllers have asked for, and when; it kills one in the middle of a write.

    Attributes:
        writes: As `Asked`, but for those of leases and events.
    """

    def __init__(self, api, deployment):
        self.writes = []
        self._api = api
        self._deployment = deployment
        self._lock = threading.Lock()
        self._reigns = []
        self._problems = []
        self._moment = self._victim = self._killed_s = None
        self._killed = threading.Event()
        api.on_request = self._note

    @property
    def leader(self):
        """The one that asked last for what only a leader asks for."""
        return self._deployment.all[self._reigns[-1]] if self._reigns else None

    def kill_at(self, moment):
        """Kill the leader while a certain write of it is under way."""
        with self._lock:
            self._victim, self._moment = self.leader, moment
            self._killed.clear()

    def is_killed(self, within_s):
        """Wait for that, or kill it when time is up; when it was, by the monotonic clock."""
        self._killed.wait(within_s)
        with self._lock:
            if self._moment is not None:
                self._kill()
        self._victim.process.wait()
        return self._killed_s

    def first_write_since(self, time_s):
        """When somebody else than the dead first wrote after a moment; None where nobody has."""
        alive = {each.user for each in self._deployment.alive()}
        return next((w.time_s for w in list(self.writes)
                     if w.time_s > time_s and w.user in alive), None)  # fmt: skip

    def problems(self, plays):
        """Whatever should not have happened, as texts."""
        yield from self._problems
        yield from _made_otherwise(self._api.objects, plays)
        for play in plays:
            yield from _touched(self._api.objects, play)
            yield from play.problems()

    def _note(self, asked):
        if asked.place.plural == "leases" or not asked.user:
            return
        with self._lock:
            if asked.user not in self._reigns[-1:]:
                self._begin_reign(asked.user)
            if asked.verb in VERBS.values() and asked.place.plural != "events":
                self.writes.append(asked)
                self._kill_where_it_is_time(asked)

    def _begin_reign(self, user):
        if user in self._reigns:
            self._problems.append(f"{user} acts again after {self._reigns[-1]}")
        if self._reigns and self._deployment.all[self._reigns[-1]].is_alive:
            self._problems.append(f"{user} acts beside {self._reigns[-1]}")
        self._reigns.append(user)

    def _kill_where_it_is_time(self, asked):
        if self._moment is not None and self._moment.has_come(asked):
            self._kill()

    def _kill(self):
        self._moment, self._killed_s = None, time.monotonic()
        os.kill(self._victim.process.pid, signal.SIGKILL)
        self._killed.set()


class Cluster:
    """API server, nodes, Kubernetes' own controllers, and two of ours."""

    def __init__(self, api, kubelet, deployment):
        self.api = api
        self.objects = api.objects
        self.kubelet = kubelet
        self.deployment = deployment
        self.account = Account(api, deployment)

    def begin(self):
        """Wait until one acts and the other stands by."""
        wait_for(lambda: self.account.leader and self.deployment.stands_by(), PATIENCE_S,
                 self.deployment.logs)  # fmt: skip

    def submit(self, plays, is_whole=True):
        """Have jobs begin, and wait until all of each runs where it is to."""
        for play in plays:
            play.step()
        if is_whole:
            wait_for(lambda: all(play.is_whole() for play in plays), PATIENCE_S,
                     lambda: self._stuck(plays))  # fmt: skip

    def take_steps(self, plays, rng, count):
        """So many steps of plays that are ready for one; returns what they were, for people."""
        told = []
        for _ in range(min(count, sum(play.num_left for play in plays))):
            due = wait_for(lambda: [each for each in plays if each.num_left and each.is_due()],
                           PATIENCE_S, lambda: f"{self._stuck(plays)}\n{self.deployment.logs()}",
                           )  # fmt: skip
            told.append(rng.choice(due).step())
        return told

    def play_to_the_end(self, plays, rng):
        """Take all steps that are left, and wait until every job is over."""
        self.take_steps(plays, rng, sum(play.num_left for play in plays))
        wait_for(lambda: all(play.is_over() for play in plays), PATIENCE_S,
                 lambda: f"{self._stuck(plays)}\n{self.deployment.logs()}")  # fmt: skip
        self.is_quiet()

    def is_quiet(self, still_s=1.5):
        """Wait until nobody has written anything for a while."""
        deadline_s = time.monotonic() + PATIENCE_S
        seen, since_s = len(self.account.writes), time.monotonic()
        while time.monotonic() - since_s < still_s:
            assert time.monotonic() < deadline_s, f"no end of {self.account.writes[-5:]}"
            time.sleep(0.05)
            if len(self.account.writes) != seen:
                seen, since_s = len(self.account.writes), time.monotonic()

    def events(self, **fields):
        items, _ = self.objects.list(Place("", "v1", "events"))
        return [each for each in items if fields.items() <= each.items()]

    def _stuck(self, plays):
        left = [play for play in plays if play.num_left or not play.is_over()]
        pods = [(p["metadata"]["name"], p["status"]["phase"]) for play in left for p in play.pods()]
        return f"{[(play.name, play.status) for play in left]} {pods}"


@contextmanager
def cluster(folder, seed, *flags, cores=None):
    """A cluster with nodes and types, and nothing else in it.

    Args:
        flags: Further ones of the controllers.
        cores: Of nodes on which not all fits, by their names; large ones where left out.
    """
    rng = random.Random(seed)
    with InMemoryApi() as api:
        api.serve(*(play.resource for play in (ElasticPlay, TFPlay, TrainingPlay, TrainPlay)))
        api.serve(SECRETS)
        kubelet = FittingKubelet(api, cores) if cores else _roomy(api, rng)
        kubelet.start()
        workloads = Workloads(api).start()
        flags = ("-n", NAMESPACE, "--requests_per_second", "200", *flags)
        try:
            with Deployment(api, folder, *flags) as deployment:
                made = Cluster(api, kubelet, deployment)
                made.begin()
                yield made
        finally:
            workloads.close()
            kubelet.close()


def _roomy(api, rng):
    add_nodes(api, NODES)
    return Kubelet(api, _SlowStart(rng), NODES)


class _SlowStart:
    """Has each pod wait for a random time before it starts."""

    def __init__(self, rng):
        self._rng = rng
        self._due_s = {}

    def __call__(self, pod):
        due_s = self._due_s.setdefault(
            pod["metadata"]["uid"], time.monotonic() + self._rng.uniform(0, START_S)
        )
        return time.monotonic() >= due_s


def add_nodes(api, names):
    """Nodes that are ready, with room for many pods."""
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True"}]
    for name in names:
        manifest = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
        api.objects.create(Place("", "v1", "nodes"), manifest)
        status = {"allocatable": allocatable, "conditions": conditions}
        api.objects.merge(Place("", "v1", "nodes", "", name, "status"), {"status": status})


def _made_otherwise(objects, plays):
    """What was made more or less often than it was to be."""
    generated = {name for play in plays for plural, name in play.made if plural == "jobs"}
    generated |= {name for play in plays for plural, name in play.made if plural == "replicasets"}
    made = Counter()
    for place in MADE_TYPES:
        for event in objects.events_after(place, 0):
            if event.kind == "ADDED":
                name = event.new["metadata"]["name"]
                group = name.rpartition("-")[0]
                is_generated = place.plural == "pods" and group in generated
                made[place.plural, group if is_generated else name] += 1
    wanted = sum((play.made for play in plays), Counter())
    for plural, name in sorted(made.keys() | wanted.keys()):
        if made[plural, name] != wanted[plural, name]:
            times = f"{made[plural, name]} times, not {wanted[plural, name]}"
            yield f"of {plural} {name} was made {times}"


def _touched(objects, play):
    """Pods that were healthy and were removed or changed, although nobody wanted that."""
    nameless = 0
    for event in objects.events_after(PODS, 0):
        if event.old is None or not play.is_own(event.old) or not _is_healthy(event.old):
            continue
        name = event.new["metadata"]["name"]
        if _belonging(event.old) != _belonging(event.new):
            yield f"{name} has changed hands: {_belonging(event.new)}"
        if not _is_asked_to_go(event) or _is_wanted_gone(play, event):
            continue
        # Which trainers go is for Kubernetes to say.
        if play.resource is not TrainingPlay.resource:
            yield f"{name} was removed though it was healthy"
        nameless += 1
    sizes = [size for _, size in play.sizes]
    wanted = sum(max(0, before - after) for before, after in itertools.pairwise(sizes))
    if play.resource is TrainingPlay.resource and nameless != wanted:
        yield f"{play.name} has lost {nameless} healthy pods, and was to lose {wanted}"


def _is_wanted_gone(play, event):
    """Whether the job is over, or its size is without this one, or others have removed it."""
    if play.ended_version is not None and event.version > play.ended_version:
        return True
    index = index_of(event.old)
    is_surplus = index is not None and index >= play.size_at(event.version)
    return is_surplus or event.old["metadata"]["uid"] in play.lost


def _is_asked_to_go(event):
    return event.kind == "DELETED" or "deletionTimestamp" in event.new["metadata"]


def _belonging(pod):
    return {key: pod["metadata"].get(key) for key in ("labels", "ownerReferences")}


def _is_healthy(pod):
    return pod["status"]["phase"] in ("Pending", "Running") and (
        "deletionTimestamp" not in pod["metadata"]
    )
