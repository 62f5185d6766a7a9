"""Simulated nodes of the test's cluster, lost and found again.

Each is a process named kubemark on this machine: to Kubernetes a node like any other, whose pods
turn Running and run nothing. Without its process, it is a machine that has lost its power.
"""

import fcntl
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import psutil

from support.cluster import eventually
from support.processes import StartedProcess

HOLLOW_LABEL = "elastic.test/hollow"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_PATIENCE_S = 120.0
_TAINT_PATIENCE_S = 15.0


class SimulatedNode:
    """One node that can be lost."""

    def __init__(self, cluster, name):
        self.name = name
        self._cluster = cluster
        self._path = f"/api/v1/nodes/{name}"
        self._started = None

    @classmethod
    def names(cls):
        """Of all simulated nodes that have a process."""
        return sorted(
            argument.partition("=")[2]
            for process in _kubemarks()
            for argument in process.info["cmdline"]
            if argument.startswith("--name=")
        )

    @classmethod
    def unused(cls, cluster):
        """One that is ready and has no pod of anybody; waits for it."""
        nodes = [cls(cluster, name) for name in cls.names()]
        return eventually(
            lambda: next((n for n in nodes if n.is_ready() and not n._pods()), None), _PATIENCE_S
        )

    @classmethod
    def until_all_unused(cls, cluster):
        """Wait until every one is ready, and what others ran there is gone."""
        nodes = [cls(cluster, name) for name in cls.names()]
        eventually(lambda: all(n.is_ready() and not n._pods() for n in nodes), _PATIENCE_S)

    def lose(self):
        """End its process, as a power cut would."""
        process = self._process()
        self._started = StartedProcess.of(process)
        process.kill()
        eventually(lambda: self._process() is None)

    def until_given_up(self):
        """Wait until Kubernetes has the node for lost, and evicts its pods; who said so, in words.

        Kubernetes 1.19 and 1.20 may forget the taint that evicts, which its pull request 96876
        mends; the one that keeps new pods away is always there. Then it is set here, as people who
        run such a cluster have to.
        """
        eventually(lambda: _UNREACHABLE in {taint["key"] for taint in self._taints()})
        try:
            eventually(self._is_evicting, _TAINT_PATIENCE_S)
        except AssertionError:
            taint = {"key": _UNREACHABLE, "effect": "NoExecute"}
            self._cluster.patch(self._path, {"spec": {"taints": [*self._taints(), taint]}})
            return "the test set the taint that evicts"
        return "Kubernetes set the taint that evicts"

    def restore(self):
        """Start its process as it was, where it was ended, and wait until the node is ready."""
        if self._started is None:
            return
        started, self._started = self._started, None
        started.start()
        eventually(self._process)
        eventually(self.is_ready, _PATIENCE_S)

    def is_ready(self):
        """Whether the node answers and takes pods."""
        conditions = self._cluster.get(self._path)["status"]["conditions"]
        is_ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        return is_ready and {taint["key"] for taint in self._taints()} <= {HOLLOW_LABEL}

    def _taints(self):
        return self._cluster.get(self._path)["spec"].get("taints") or []

    def _is_evicting(self):
        return (_UNREACHABLE, "NoExecute") in {(t["key"], t["effect"]) for t in self._taints()}

    def _pods(self):
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        return self._cluster.get("/api/v1/pods", query)["items"]

    def _process(self):
        found = (p for p in _kubemarks() if f"--name={self.name}" in p.info["cmdline"])
        return next(found, None)


def revive_nodes(cluster):
    """Start again, as its peers run, what has ended by itself, and wait until it is ready.

    The kubelet of a simulated node has maps that several of its threads write to at once: now and
    then, where many pods start together, Go ends it for that.
    """
    with (Path(tempfile.gettempdir()) / "elastic-simulated-nodes.lock").open("w") as lock:
        # Several processes of pytest look at the same moment.
        fcntl.flock(lock, fcntl.LOCK_EX)
        query = {"labelSelector": f"{HOLLOW_LABEL}=true"}
        named = {each["metadata"]["name"] for each in cluster.get("/api/v1/nodes", query)["items"]}
        living = _kubemarks()
        for name in sorted(named - set(SimulatedNode.names())) if living else ():
            _started_as(StartedProcess.of(living[0]), name).start()
            eventually(SimulatedNode(cluster, name).is_ready, _PATIENCE_S)


def _started_as(peer, name):
    """How a node of another name is started, as a peer was; ports are counted as names are."""
    [own] = (each.partition("=")[2] for each in peer.arguments if each.startswith("--name="))
    further = int(name.rpartition("-")[2]) - int(own.rpartition("-")[2])

    def own_port(found):
        return f"{found[1]}{int(found[2]) + further}"

    arguments = (re.sub(r"^(--[a-z-]+-port=)(\d+)$", own_port, each) for each in peer.arguments)
    return replace(
        peer,
        arguments=tuple(each.replace(own, name) for each in arguments),
        log=peer.log.replace(own, name),
        note=peer.note.replace(own, name),
    )


def _kubemarks():
    """Processes of simulated nodes; one that has ended, and that nobody has buried, is none."""
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "kubemark" and process.info["cmdline"]
    ]
