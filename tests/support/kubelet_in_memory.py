"""Starts and ends the pods of `support.api_server_in_memory`, as scheduler and kubelet would."""

import itertools
import threading

from support.api_objects import Place, RefusalError

PODS = Place("", "v1", "pods")


class Kubelet:
    """Runs every pod on its node, the first for those that have none, and removes what is to go.

    `step` does what there is to do and returns; `start` has a thread do so.

    Attributes:
        may_start: Asked for each pod that waits; those that it holds are asked for again by `step`.
        is_cut_off: Nothing is done meanwhile, as by a node that nobody hears of.
    """

    def __init__(self, api, may_start=lambda _: True, nodes=("node-0",)):
        self.may_start = may_start
        self.is_cut_off = False
        self._objects = api.objects
        self._nodes = itertools.cycle(nodes)
        self._version = 0
        self._waiting = {}
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def start(self):
        self._thread.start()
        return self

    def close(self):
        self._is_closed = True
        self._objects.wake_all()
        if self._thread.is_alive():
            self._thread.join()

    def step(self):
        """Act on all that has changed; True where there was anything."""
        if self.is_cut_off:
            return False
        news = self._news()
        for kind, pod in news:
            if kind == "DELETED":
                self._waiting.pop(_place(pod), None)
            else:
                self._waiting[_place(pod)] = pod
        for place, pod in list(self._waiting.items()):
            if self._act(place, pod):
                del self._waiting[place]
        return bool(news)

    def end(self, namespace, name, exit_code=0, reason=""):
        """The pod's containers end by themselves, or by their node where it has a reason to."""
        place = Place("", "v1", "pods", namespace, name, "status")
        now = self._objects.stamp()
        pod = self._objects.get(place)
        began = pod["status"].get("startTime", now)
        terminated = {"exitCode": exit_code, "startedAt": began, "finishedAt": now}
        statuses = [
            {"name": each["name"], "ready": False, "state": {"terminated": terminated}}
            for each in pod["spec"].get("containers", ())
        ]
        phase = "Failed" if exit_code or reason else "Succeeded"
        status = {"phase": phase, "containerStatuses": statuses, "conditions": []}
        if reason:
            status["reason"] = reason
        self._objects.merge(place, {"status": status})

    def _news(self):
        """What has happened since the last time; everything where that is forgotten."""
        try:
            with self._objects.lock:
                events = self._objects.events_after(PODS, self._version)
        except RefusalError:
            items, self._version = self._objects.list(PODS)
            return [("ADDED", item) for item in items]
        if events:
            self._version = events[-1].version
        return [(event.kind, event.new) for event in events]

    def _act(self, place, pod):
        """Start or remove one pod; False where it has to wait."""
        try:
            if "deletionTimestamp" in pod["metadata"]:
                self._objects.delete(place, {"gracePeriodSeconds": 0})
            elif pod["status"]["phase"] == "Pending":
                if not self.may_start(pod):
                    return False
                self._run_pod(place, pod)
        except RefusalError:
            # It was removed meanwhile.
            pass
        return True

    def _run_pod(self, place, pod):
        if not pod.get("spec", {}).get("nodeName"):
            self._objects.merge(place, {"spec": {"nodeName": next(self._nodes)}})
        now = self._objects.stamp()
        running = {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [
                {"name": each["name"], "ready": True, "state": {"running": {"startedAt": now}}}
                for each in pod.get("spec", {}).get("containers", ())
            ],
        }
        status = Place("", "v1", "pods", place.namespace, place.name, "status")
        self._objects.merge(status, {"status": running})

    def _run(self):
        while not self._is_closed:
            if not self.step():
                with self._objects.lock:
                    # What came since the step has not been waited for: hence no long wait.
                    self._objects.wait(PODS, 0.02)


def _place(pod):
    metadata = pod["metadata"]
    return Place("", "v1", "pods", metadata["namespace"], metadata["name"])
