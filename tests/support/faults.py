"""What is done to a job in a real cluster, and to which pod."""

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from urllib.parse import urlparse

import psutil

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.api.transport import find_access
from support.cluster import KUBECONFIG, eventually, open_cluster
from support.processes import StartedProcess

NUM_WATCHES = 2
"""Connections that a master keeps open: it watches its pods, and the record of its job."""

NOTICED_WITHIN_S = 60.0
"""Shorter than the silence after which a watch is given up: only its end can have been noticed."""

_API_PORTS = ("443", "6443")
_TO_API = "( {} )".format(" or ".join(f"dport = :{port}" for port in _API_PORTS))
_FROM_API = _TO_API.replace("dport", "sport")

DELETIONS = frozenset({"delete-now", "delete-gently", "delete-while-cut"})
KILLS = frozenset({"kill", "memory"})
OUTAGES = {"api-server-ends": 60.0, "api-server-hangs": 20.0}
"""Seconds for which each keeps the API server from answering; each is done once."""
MASTER_KILLS = frozenset({"kill-master", "kill-master-process"})
KINDS = DELETIONS | KILLS | OUTAGES.keys() | MASTER_KILLS


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing done to a job.

    Attributes:
        kind: What was done.
        pod_uid: To which pod; None where it was done to no pod.
        replica: What ran in it.
        time_s: When, in seconds since the Unix epoch.
    """

    kind: str
    pod_uid: str | None = None
    replica: str = ""
    time_s: float = 0.0


class Breaker:
    """Breaks a running job at random moments, seeded, and writes down what it did."""

    def __init__(self, job, seed):
        self._job = job
        self._rng = random.Random(seed)
        self.faults = []

    def break_often(self, num_faults):
        """Do it again and again, in random order, each kind as often as any other.

        Half-way there is no API server for a while, and later it hangs for a while.
        """
        for kind in self._deck(num_faults):
            done = False
            while not done:
                time.sleep(self._rng.uniform(0.2, 2.0))
                status = self._job.status()
                assert not status.phase.is_final, f"over after {self.faults}: {status}"
                done = self._break(kind)

    def _deck(self, num_faults):
        kinds = ["delete-now", "delete-gently", "kill", "memory", "cut", *sorted(MASTER_KILLS)]
        often = [kinds[i % len(kinds)] for i in range(num_faults - len(OUTAGES))]
        self._rng.shuffle(often)
        half, end = len(often) // 2, len(often) * 3 // 4
        return [
            *often[:half],
            "api-server-ends",
            *often[half:end],
            "api-server-hangs",
            *often[end:],
        ]

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
        if kind == "api-server-ends":
            self._note(kind, None)
            end_api_server(OUTAGES[kind])
            return True
        if kind == "api-server-hangs":
            self._note(kind, None)
            with stopped_api_server():
                time.sleep(OUTAGES[kind])
            return True
        if kind == "cut":
            if connections_to_api(self._job) < NUM_WATCHES:
                # The master is not back yet from what was done to it before.
                return False
            return self.cut(self._rng.uniform(0.5, 5.0))
        if kind in MASTER_KILLS:
            return self._break_master(kind)
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

    def _break_master(self, kind):
        # A life of the master that ends before it has told anything could not be counted.
        kills = sum(fault.kind in MASTER_KILLS for fault in self.faults)
        if self._job.status().master_restarts != kills:
            return False
        pod = self._job.pod("master")
        if kind == "kill-master":
            return self._kill(kind, pod)
        self._note(kind, pod)
        has_hit = self._job.kill_master() is not None
        if not has_hit:
            self.faults.pop()
        return has_hit

    def _kill(self, kind, pod):
        self._note(kind, pod)
        has_hit = self._job.kill_container(pod)
        if not has_hit:
            self.faults.pop()
        return has_hit

    def _note(self, kind, pod):
        uid = None if pod is None else pod["metadata"]["uid"]
        replica = "" if pod is None else replica_of(pod)
        self.faults.append(Fault(kind, uid, replica, time.time()))


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


# -- the API server


def end_api_server(seconds):
    """Kill the API server, and return when a new one, started `seconds` later, is ready.

    Meanwhile connections are refused, and the new one remembers no watch of the old one's. A
    process of its own starts it, so that it comes whatever becomes of the test.
    """
    server = _api_server()
    started = StartedProcess.of(server)
    started.start(seconds)
    try:
        server.kill()
        # Its port is closed a moment after it has ended for everybody else.
        eventually(is_api_server_away, seconds / 2)
    finally:
        # Whoever comes next needs one.
        eventually(_api_server, seconds + NOTICED_WITHIN_S)
        cluster = open_cluster()
        eventually(lambda: _is_ready(cluster), NOTICED_WITHIN_S)


@contextlib.contextmanager
def stopped_api_server():
    """The API server neither answers nor refuses, as on a machine that hangs."""
    server = _api_server()
    server.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.send_signal(signal.SIGCONT)


def _api_server():
    """Its process; one that has ended, and that nobody has buried, is none."""
    found = (
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "kube-apiserver" and process.info["cmdline"]
    )
    return next(found, None)


def is_api_server_away():
    """Whether it refuses connections, as one that has ended."""
    address = urlparse(find_access(KUBECONFIG).configuration.host)
    try:
        socket.create_connection((address.hostname, address.port or 443)).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        # Its port was still open, and closed before anybody took the connection.
        return False
    return False


def _is_ready(cluster):
    try:
        return list(cluster.lines("/readyz", {})) == [b"ok"]
    except PlatformError:
        return False
