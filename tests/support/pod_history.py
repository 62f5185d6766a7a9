"""What became of every worker pod of a job, and whether what was done to it explains that."""

import contextlib
import json
import signal
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.resources import PODS
from support.cluster import eventually
from support.faults import DELETIONS, KILLS, launch_of, replica_of

_WATCH_S = 5
_KILLED = 128 + signal.SIGKILL
_EVICTED_WITHIN_S = 15.0
EVICTED = "evicted"


@dataclass(slots=True)
class PodLife:
    """One pod.

    Attributes:
        was_deleted_alive: Its deletion was asked for while its container ran or was to start.
        terminated: How its container ended, if that was before.
        was_unseen: It is gone, and nobody could see how: it was while the API server began anew.
        ended_s: When its end was seen, in seconds since the Unix epoch.
    """

    replica: str
    launch: int
    was_deleted_alive: bool = False
    terminated: dict | None = None
    was_unseen: bool = False
    ended_s: float | None = None

    @property
    def has_ended(self):
        return self.was_deleted_alive or self.terminated is not None or self.was_unseen


class PodHistory:
    """Follows the job's worker pods by a watch of its own, from before its first fault.

    Each change comes in its order, so none of a pod's states is missed, unlike by looking.
    """

    def __init__(self, job):
        self._cluster = job.cluster
        self._path = PODS.path(job.workshop.namespace)
        labels = f"app=elastic,elastic-job-name={job.name},elastic-replica-type=worker"
        self._selector = {"labelSelector": labels}
        self._lock = threading.Lock()
        self._lives = {}
        self._versions = {}
        self._newest = None
        self._failure = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self):
        self._list()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()

    def lives(self):
        """Uid to life of every pod there has been up to now."""
        eventually(self._is_current)
        with self._lock:
            return dict(self._lives)

    def _is_current(self):
        assert self._failure is None, self._failure
        listed = {
            pod["metadata"]["uid"]: pod["metadata"]["resourceVersion"]
            for pod in self._cluster.get(self._path, self._selector)["items"]
        }
        with self._lock:
            return listed == self._versions

    def _follow(self):
        while not self._stopping.is_set() and self._failure is None:
            # Some of the faults keep the API server from answering.
            with contextlib.suppress(PlatformError):
                self._watch()

    def _watch(self):
        query = self._selector | {
            "watch": "true",
            "resourceVersion": self._newest,
            "timeoutSeconds": str(_WATCH_S),
        }
        for line in self._cluster.lines(self._path, query):
            event = json.loads(line)
            if event["type"] == "ERROR" and event["object"].get("code") == HTTPStatus.GONE:
                # A new API server remembers nothing from before its start.
                self._list()
                return
            if event["type"] == "ERROR":
                self._failure = event["object"]
                return
            self._take(event["type"], event["object"])
            self._newest = event["object"]["metadata"]["resourceVersion"]

    def _list(self):
        answer = self._cluster.get(self._path, self._selector)
        for pod in answer["items"]:
            self._take("ADDED", pod)
        listed = {pod["metadata"]["uid"] for pod in answer["items"]}
        with self._lock:
            for uid in self._versions.keys() - listed:
                del self._versions[uid]
                life = self._lives[uid]
                if not life.has_ended:
                    life.was_unseen, life.ended_s = True, time.time()
        self._newest = answer["metadata"]["resourceVersion"]

    def _take(self, kind, pod):
        uid = pod["metadata"]["uid"]
        with self._lock:
            life = self._lives.setdefault(uid, PodLife(replica_of(pod), launch_of(pod)))
            self._versions[uid] = pod["metadata"]["resourceVersion"]
            if kind == "DELETED":
                del self._versions[uid]
            if life.has_ended:
                return
            life.terminated = _terminated(pod)
            is_leaving = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
            life.was_deleted_alive = is_leaving and life.terminated is None
            if life.has_ended:
                life.ended_s = time.time()


def unexplained(lives, faults, may_complete=False, evictions=()):
    """In words, each pod that ended otherwise than by what was done to this very pod.

    Args:
        lives: Of a `PodHistory`.
        faults: What was done.
        may_complete: The job has come to its end, so a worker may have ended by itself.
        evictions: See `evicted_for_silence`.
    """
    done = {}
    for fault in faults:
        done.setdefault(fault.pod_uid, set()).add(fault.kind)
    for uid, life in lives.items():
        if life.was_deleted_alive and any(each.explains(life) for each in evictions):
            done.setdefault(uid, set()).add(EVICTED)
    return [
        f"{life.replica}/{life.launch} ({uid}): {life}, done to it: {sorted(done.get(uid, ()))}"
        for uid, life in lives.items()
        if life.has_ended and not _explains(done.get(uid, set()), life, may_complete)
    ]


def _explains(kinds, life, may_complete):
    if life.was_unseen:
        return bool(kinds)
    if life.was_deleted_alive:
        return bool(kinds & (DELETIONS | {EVICTED}))
    if life.terminated["exitCode"] == 0:
        return may_complete
    return life.terminated["exitCode"] == _KILLED and bool(kinds & KILLS)


@dataclass(frozen=True, slots=True)
class Eviction:
    """What Kubernetes has written of a pod that it removed since its node was not heard."""

    replica: str
    time_s: float

    def explains(self, life):
        """Whether the life ended by it; the event does not say which pod of that name it was."""
        return life.replica == self.replica and abs(life.ended_s - self.time_s) < _EVICTED_WITHIN_S


def evicted_for_silence(job):
    """Pods that the cluster itself removed, by its own events: the test's faults may lead to it."""
    selector = {"fieldSelector": "reason=TaintManagerEviction"}
    path = f"/api/v1/namespaces/{job.workshop.namespace}/events"
    return [
        Eviction(event["involvedObject"]["name"].removeprefix(f"elastic-{job.name}-"), time_s)
        for event in job.cluster.get(path, selector)["items"]
        # It also tells where the node was heard in time.
        if event["message"].startswith("Marking for deletion")
        for time_s in {_seconds(event["firstTimestamp"]), _seconds(event["lastTimestamp"])}
    ]


def _seconds(text):
    return datetime.fromisoformat(text).timestamp()


def _terminated(pod):
    for entry in pod["status"].get("containerStatuses") or []:
        if "terminated" in (entry.get("state") or {}):
            return entry["state"]["terminated"]
    return None
