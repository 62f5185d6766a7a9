"""Jobs that the real controller looks after, in a process of its own, on the cluster for tests."""

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import yaml

import elastic
from elastic.controller.resources import elastic_job, elastic_train_job, tf_job, training_job
from elastic.platforms.kubernetes.api.cluster import RefusedError
from elastic.platforms.kubernetes.api.resources import (
    BATCH_JOBS,
    CONFIGMAPS,
    EVENTS,
    PODS,
    REPLICA_SETS,
    SERVICES,
)
from support.cluster import KUBECONFIG, eventually, exists

ROOT = Path(elastic.__file__).parents[1]
EXAMPLES = ROOT / "manifests" / "examples"
REGISTRY = os.environ.get("ELASTIC_TEST_REGISTRY", "")
KINDS = (
    training_job.RESOURCE,
    elastic_job.RESOURCE,
    tf_job.RESOURCE,
    elastic_train_job.RESOURCE,
)
TOLERATIONS = [{"key": "elastic.test/hollow", "operator": "Exists"}]
"""Of the taint that simulated nodes have."""
ON_SIMULATED = {"elastic.test/hollow": "true"}
"""Their label."""
PORT = 8123
UNANSWERED = "does not answer"
"""What the last line of a controller says that the API server has left alone."""
STARVED = "as on a node without CPU to spare"
"""What that of one says which had no CPU for as long as it holds its lease."""
MOST_STARVED = 2
"""How often that may come about in the life of one controller: it takes seven seconds."""

# Stands in for the images of the examples that cannot be pulled: it is what they are started as,
# prints what it was told, and ends as it is asked to.
PROGRAM = f"""
import os, signal, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

# The first process of a container ends at no signal that it does not handle.
signal.signal(signal.SIGTERM, lambda *_: os._exit(143))


class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        os._exit(int(self.path.rpartition("/")[2]))


print("started as", sys.argv, flush=True)
HTTPServer(("", {PORT}), Door).serve_forever()
"""
DOCKERFILE = """
FROM python:3.11-slim
COPY program.py paddle_k8s curl /usr/local/bin/
ENTRYPOINT ["python3", "/usr/local/bin/program.py"]
"""


@contextmanager
def stand_in(folder):
    """The name of an image that nodes can pull; gone from the engine at the end."""
    (folder / "Dockerfile").write_text(DOCKERFILE)
    (folder / "program.py").write_text(PROGRAM)
    scripts = {
        "paddle_k8s": 'exec python3 /usr/local/bin/program.py "$@"',
        "curl": "exec cat /usr/local/bin/program.py",
    }
    for name, line in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    image = f"{REGISTRY}/elastic-test/stand-in:{os.getpid()}"
    subprocess.run(["docker", "build", "-t", image, folder], check=True, capture_output=True)
    subprocess.run(["docker", "push", image], check=True, capture_output=True)
    yield image
    # By force: the node may not have removed its last container yet.
    subprocess.run(["docker", "rmi", "--force", image], check=True, capture_output=True)


class Controller:
    """A process of `elastic controller`, that can be ended and started again.

    Where it ends by itself since the API server did not answer for long, or it had no CPU itself,
    it is started again, as by its Deployment: that a machine has none to spare is nothing that a
    test is about.
    """

    def __init__(self, namespace, log, *flags):
        self._namespace = namespace
        self._flags = flags
        self._log = log
        self._process = None
        self._began_at = 0
        self._is_wanted = False
        self._num_starved = 0
        self._changing = threading.Lock()

    def start(self):
        with self._changing:
            self._is_wanted = True
            self._launch()
            threading.Thread(target=self._keep, args=(self._process,), daemon=True).start()

    def _launch(self):
        self._began_at = len(self.log()) if self._log.exists() else 0
        command = [sys.executable, "-m", "elastic.cli", "controller", "-n", self._namespace]
        command += ["--port", "0", "--kubeconfig", KUBECONFIG, *self._flags]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def _keep(self, process):
        while process.wait() != 0:
            with self._changing:
                # Who ends it, or starts another, is not undone.
                is_this_one = self._is_wanted and process is self._process
                if not (is_this_one and self._was_left_alone()):
                    return
                self._launch()
                process = self._process

    def _was_left_alone(self):
        last_words = self.log().rstrip().rpartition("\n")[2]
        if STARVED in last_words:
            # One that forgets to renew ends with the same words, and every few seconds.
            self._num_starved += 1
            return self._num_starved <= MOST_STARVED
        # For whatever else it ends, such as a crash, that is for the test to see.
        return UNANSWERED in last_words

    @property
    def is_leading(self):
        """Whether it lives and has said that it leads."""
        return self._process.poll() is None and "leads: " in self.log()[self._began_at :]

    @property
    def is_standing_by(self):
        """Whether it lives and has said that it waits for another one's lease."""
        return self._process.poll() is None and "stands by: " in self.log()[self._began_at :]

    def kill(self):
        with self._changing:
            self._is_wanted = False
            self._process.kill()
            self._process.wait()

    def end(self):
        # One that has just been started knows no signals yet.
        eventually(lambda: "looks after " in self.log()[self._began_at :])
        with self._changing:
            self._is_wanted = False
            self._process.terminate()
            code = self._process.wait(30)
        assert code == 0, self.log()

    def log(self):
        return self._log.read_text()


class Applied:
    """An object that was applied, and what became of it."""

    def __init__(self, cluster, namespace, manifest, by_kubectl=False):
        self.cluster = cluster
        self.namespace = namespace
        self.name = manifest["metadata"]["name"]
        self.resource = resource_of(manifest)
        if by_kubectl:
            created = kubectl_apply(namespace, manifest)
        else:
            created = cluster.create(self.resource.path(namespace), manifest)
        self.uid = created["metadata"]["uid"]

    def get(self):
        return exists(self.cluster, self.resource.path(self.namespace, self.name))

    @property
    def status(self):
        found = self.get()
        assert found is not None, f"{self.name} is gone"
        return found.get("status") or {}

    @property
    def phase(self):
        return self.status.get("phase", "")

    def condition(self, type_):
        found = (c for c in self.status.get("conditions", ()) if c["type"] == type_)
        return next(found, {})

    def holds(self, type_):
        return self.condition(type_).get("status") == "True"

    def until_gone(self):
        """Wait for its children to go; a node that failed to kill tries again in a minute."""
        self.until(lambda: not self.children(), 180.0)

    def until(self, probe, timeout_s=60.0):
        """Wait; a failure shows what there is."""
        try:
            return eventually(probe, timeout_s)
        except AssertionError:
            raise AssertionError(f"never came about:\n{self.picture()}") from None

    def picture(self):
        pods = {
            name: (
                pod["spec"].get("nodeName"),
                pod["status"]["phase"],
                _states(pod),
                pod["status"].get("containerStatuses"),
                self.log(name),
            )
            for name, pod in self.pods().items()
        }
        # A node that is lost shows here and nowhere else.
        nodes = {
            each["metadata"]["name"]: (_states(each), each["spec"].get("taints"))
            for each in self.cluster.get("/api/v1/nodes")["items"]
        }
        parts = {"status": (self.get() or {}).get("status"), "nodes": nodes}
        return yaml.safe_dump(parts | {"pods": pods, "told": self.told()})

    def edit(self, **spec):
        self.cluster.patch(self.resource.path(self.namespace, self.name), {"spec": spec})

    def delete(self):
        self.cluster.delete(self.resource.path(self.namespace, self.name))

    def told(self):
        """Its events: type, reason and message of each, and from whom."""
        query = {"fieldSelector": f"involvedObject.uid={self.uid}"}
        return [
            (each["type"], each["reason"], each["message"], each["source"]["component"])
            for each in self.cluster.get(EVENTS.path(self.namespace), query)["items"]
        ]

    def reasons(self):
        return {reason for _, reason, _, _ in self.told()}

    def owned(self, resource):
        """What it controls, directly or not, by name."""
        items = self.cluster.get(resource.path(self.namespace))["items"]
        above = {self.uid}
        for kind in (REPLICA_SETS, BATCH_JOBS):
            if resource is PODS:
                above |= {each["metadata"]["uid"] for each in self.owned(kind).values()}
        return {
            item["metadata"]["name"]: item
            for item in items
            if any(
                owner["uid"] in above and owner.get("controller")
                for owner in item["metadata"].get("ownerReferences", ())
            )
        }

    def pods(self):
        """Those that were not asked to go, by name."""
        found = self.owned(PODS).items()
        return {name: pod for name, pod in found if "deletionTimestamp" not in pod["metadata"]}

    def running(self):
        """Names of pods that run, and are ready."""
        return {name for name, pod in self.pods().items() if is_ready(pod)}

    def children(self):
        """All that it controls."""
        kinds = (REPLICA_SETS, BATCH_JOBS, SERVICES, CONFIGMAPS, PODS)
        return {(kind.kind, name) for kind in kinds for name in self.owned(kind)}

    def log(self, pod):
        try:
            lines = self.cluster.lines(PODS.path(self.namespace, pod, "log"), {})
            return "\n".join(line.decode() for line in lines)
        except RefusedError:
            return ""

    def remove(self, pod, grace_s=0):
        self.cluster.delete(PODS.path(self.namespace, pod), grace_s=grace_s)

    def exit(self, pod, code):
        """Let the program in a pod end with this code; it runs the stand-in."""
        # One that was just made anew has none yet.
        address = self.until(lambda: self.pods().get(pod, {}).get("status", {}).get("podIP"))
        eventually(lambda: _is_asked(f"http://{address}:{PORT}/exit/{code}"))


def _is_asked(url):
    try:
        with urllib.request.urlopen(url, timeout=10):
            raise AssertionError("it ends without an answer")
    except urllib.error.URLError:
        # It does not listen yet.
        return False
    except ConnectionError:
        return True


def kubectl_apply(namespace, manifest):
    """What the API server has of it then; fails with all that kubectl says."""
    command = ["kubectl", "apply", "-n", namespace, "--kubeconfig", KUBECONFIG, "-o", "json"]
    done = subprocess.run(
        [*command, "-f", "-"],
        input=yaml.safe_dump(manifest),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def resource_of(manifest):
    """The type of an object, by what it says itself, in the version that it is written in."""
    if manifest["kind"] == "ConfigMap":
        return CONFIGMAPS
    [found] = (each for each in KINDS if each.kind == manifest["kind"])
    return replace(found, version=manifest["apiVersion"].rpartition("/")[2])


def _states(item):
    return {c["type"]: c["status"] for c in item["status"].get("conditions", ())}


def is_ready(pod):
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def environment(pod):
    """Of its first container; what is filled in from the pod itself, by the field's path."""
    return {
        entry["name"]: entry.get("value")
        or (entry.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath", "")
        for entry in pod["spec"]["containers"][0].get("env", ())
    }


def example(name):
    """The documents of a file of examples, without the namespace that they may name."""
    documents = list(yaml.safe_load_all((EXAMPLES / name).read_text()))
    for each in documents:
        each["metadata"].pop("namespace", None)
    return documents


def lasts(probe, seconds):
    """Whether something holds all the time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        if not probe():
            return False
        time.sleep(0.2)
    return True
