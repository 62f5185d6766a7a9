"""What is done to a job in a real cluster, and to which pod."""

import contextlib
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass

import psutil

from support.cluster import eventually

NUM_WATCHES = 2
"""Connections that a master keeps open: it watches its pods, and the record of its job."""

NOTICED_WITHIN_S = 60.0
"""Shorter than the silence after which a watch is given up: only its end can have been noticed."""

_API_PORTS = ("443", "6443")
_TO_API = "( {} )".format(" or ".join(f"dport = :{port}" for port in _API_PORTS))
_FROM_API = _TO_API.replace("dport", "sport")

DELETIONS = frozenset({"delete-now", "delete-gently", "delete-while-cut"})
KILLS = frozenset({"kill", "memory"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing done to a job.

    Attributes:
        kind: What was done.
        pod_uid: To which pod; None where it was done to no pod.
        replica: What ran in it.
    """

    kind: str
    pod_uid: str | None = None
    replica: str = ""


class Breaker:
    """Breaks a running job at random moments, seeded, and writes down what it did."""

    def __init__(self, job, seed):
        self._job = job
        self._rng = random.Random(seed)
        self.faults = []

    def break_often(self, num_faults):
        """Do it again and again; one of them, half-way, is the silence of the API server."""
        kinds = ["delete-now", "delete-gently", "kill", "kill-master", "memory", "cut"]
        done = 0
        while done < num_faults:
            time.sleep(self._rng.uniform(0.5, 4.0))
            status = self._job.status()
            assert not status.phase.is_final, f"over after {self.faults}: {status}"
            kind = "api-server" if done == num_faults // 2 else self._rng.choice(kinds)
            done += self._break(kind)

    def cut(self, seconds):
        """Cut the master off, delete a worker's pod meanwhile, and see that the master notices.

        False where no worker was there to be deleted.
        """
        job = self._job
        with cut_from_api_server(job):
            pods = job.worker_pods()
            if not pods:
                return False
            pod = self._rng.choice(pods)
            self._note("delete-while-cut", pod)
            job.delete_pod(pod, 0)
            time.sleep(seconds)
            assert connections_to_api(job) == 0
            assert job.pod(replica_of(pod)) is None, "the master can start pods while it is cut off"
        job.until(lambda s: _launch_in(s, pod) > launch_of(pod), NOTICED_WITHIN_S)
        return True

    def _break(self, kind):
        if kind == "api-server":
            self._note(kind, None)
            with stopped_api_server():
                time.sleep(60)
            return True
        if kind == "cut":
            return self.cut(self._rng.uniform(0.5, 5.0))
        if kind == "kill-master":
            return self._kill(kind, self._job.pod("master"))
        pods = self._job.worker_pods()
        if not pods:
            return False
        pod = self._rng.choice(pods)
        if kind == "kill":
            return self._kill(kind, pod)
        # Written down first: what it leads to may be seen before the answer is here.
        self._note(kind, pod)
        if kind == "memory":
            self._job.make_greedy(pod["metadata"]["uid"])
        else:
            self._job.delete_pod(pod, 0 if kind == "delete-now" else 30)
        return True

    def _kill(self, kind, pod):
        self._note(kind, pod)
        has_hit = self._job.kill_container(pod)
        if not has_hit:
            self.faults.pop()
        return has_hit

    def _note(self, kind, pod):
        uid = None if pod is None else pod["metadata"]["uid"]
        self.faults.append(Fault(kind, uid, "" if pod is None else replica_of(pod)))


def replica_of(pod):
    """`worker-0` and the like."""
    labels = pod["metadata"]["labels"]
    if labels["elastic-replica-type"] == "master":
        return "master"
    return f"worker-{labels['elastic-replica-index']}"


def launch_of(pod):
    """Which launch of its replica a pod is."""
    return int(pod["metadata"]["labels"]["elastic-launch"])


def _launch_in(status, pod):
    index = int(pod["metadata"]["labels"]["elastic-replica-index"])
    return next((worker.launch for worker in status.workers if worker.index == index), 0)


# -- between master and API server


@contextlib.contextmanager
def cut_from_api_server(job):
    """Close the master's connections to the API server at both ends, and refuse new ones meanwhile.

    Yields how many there were.
    """
    for tool in ("ss", "iptables", "nsenter"):
        assert shutil.which(tool), f"{tool} is not installed, and cuts connections here"
    before = eventually(
        lambda: (count := connections_to_api(job)) >= NUM_WATCHES and count, NOTICED_WITHIN_S
    )
    address = job.pod("master")["status"]["podIP"]
    rule = ["-s", address, "-p", "tcp", "-m", "multiport", "--dports", ",".join(_API_PORTS)]
    rule += ["-j", "REJECT", "--reject-with", "tcp-reset"]
    chains = ("INPUT", "FORWARD")
    for chain in chains:
        subprocess.run(["iptables", "-w", "-I", chain, *rule], check=True)
    try:
        _close_connections(job, address)
        left = connections_to_api(job)
        assert left == 0, f"{left} of {before} connections outlived the cut: can this kernel cut?"
        yield before
    finally:
        for chain in chains:
            subprocess.run(["iptables", "-w", "-D", chain, *rule], check=True)


def connections_to_api(job):
    """How many connections the master has to the API server; 0 while it is restarted."""
    process_id = job.process_id(job.pod("master"))
    if process_id is None:
        return 0
    listing = ["-tnH", "state", "established", _TO_API]
    return len(_in_network_of(process_id, ["ss", *listing]).splitlines())


def _close_connections(job, address):
    """The ends of the API server, which learns nothing from the master any more, and its own."""
    command = ["ss", "-K", "-tnH", "dst", address, _FROM_API]
    subprocess.run(command, check=True, capture_output=True)
    process_id = job.process_id(job.pod("master"))
    if process_id is not None:
        _in_network_of(process_id, ["ss", "-K", "-tnH", "state", "established", _TO_API])


def _in_network_of(process_id, command):
    command = ["nsenter", "--target", str(process_id), "--net", *command]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def stopped_api_server():
    """The API server neither answers nor refuses, as on a machine that hangs."""
    [server] = [p for p in psutil.process_iter(["name"]) if p.info["name"] == "kube-apiserver"]
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)
