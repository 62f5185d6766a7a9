"""What Kueue and a node do with queued pods of `support.api_server_in_memory`, step by step.

Written from what its documentation says of plain pods: those with a queue are gated and held by a
finalizer; a group is admitted when all of it is there; what has ended of a group is held until
another pod takes its place, the group is over, or its Workload is deleted.
"""

from support.api_objects import Place, RefusalError

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
LAST = "kueue.x-k8s.io/retriable-in-group"
HOLD = "kueue.x-k8s.io/managed"
GATE = {"name": "kueue.x-k8s.io/admission"}
VERSION = "v1beta2"
ENDED = ("Succeeded", "Failed")


class Kueue:
    """Nothing happens but by `step`, which is called until nothing changes.

    Attributes:
        has_room: Whether what waits is admitted.
        finished: Names of groups that are over, for good.
    """

    def __init__(self, api):
        self.has_room = True
        self.finished = set()
        self._objects = api.objects
        self._create = api.objects.create
        self._had_workload = set()
        api.objects.create = self._created

    def _created(self, place, manifest, dry_run=False):
        metadata = manifest["metadata"]
        owners = metadata.get("ownerReferences") or ()
        # What a queued pod controls counts as admitted with it.
        is_covered = any(each.get("controller") and each["kind"] == "Pod" for each in owners)
        if place.plural == "pods" and QUEUE in (metadata.get("labels") or {}) and not is_covered:
            metadata = {**metadata, "finalizers": [HOLD]}
            spec = {**manifest["spec"], "schedulingGates": [GATE]}
            manifest = {**manifest, "metadata": metadata, "spec": spec}
        return self._create(place, manifest, dry_run)

    def pods(self):
        items, _ = self._objects.list(Place("", "v1", "pods"))
        return sorted(items, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    def settle(self):
        """Let Kueue and the node do all there is to do."""
        for _ in range(50):
            before = self.pods()
            for pod in before:
                self._as_node(pod)
            for pod in self.pods():
                if QUEUE in _labels(pod) and GROUP not in _labels(pod):
                    self._see_to_one(pod)
            groups = {_labels(pod)[GROUP] for pod in self.pods() if GROUP in _labels(pod)}
            for name in sorted(groups):
                self._see_to_group(name)
            # Of a group it knows what its Workload says, and its pods.
            self._had_workload &= groups
            if self.pods() == before:
                return
        raise AssertionError("Kueue and the node find no end")

    def evict(self, group):
        """Take the room of a group back; what it waits for now is not there."""
        self.has_room = False
        for pod in self._members(group):
            told = {"type": "TerminationTarget", "status": "True", "reason": "Preempted"}
            told["message"] = "to make room for what is more urgent"
            self._merge(pod, {"status": {**pod["status"], "conditions": [told]}}, "status")
            self._delete(pod, 30)

    def fail(self, name, code=1):
        """A pod's container ends by itself."""
        pod = next(each for each in self.pods() if each["metadata"]["name"] == name)
        self._end(pod, code)

    # -- inside --------------------------------------------------------------------------------

    def _as_node(self, pod):
        phase, is_gated = pod["status"]["phase"], pod["spec"].get("schedulingGates")
        if "deletionTimestamp" in pod["metadata"]:
            if phase == "Running":
                self._end(pod, 143)
            elif not pod["metadata"].get("finalizers"):
                self._delete(pod, 0)
        elif phase == "Pending" and not is_gated:
            self._merge(pod, {"spec": {"nodeName": "node-0"}})
            state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            status = {"phase": "Running", "containerStatuses": [_container(pod, state)]}
            self._merge(pod, {"status": status}, "status")

    def _end(self, pod, code):
        state = {"terminated": {"exitCode": code}}
        phase = "Failed" if code else "Succeeded"
        status = {**pod["status"], "phase": phase, "containerStatuses": [_container(pod, state)]}
        self._merge(pod, {"status": status}, "status")

    def _see_to_one(self, pod):
        if "deletionTimestamp" in pod["metadata"]:
            self._let_go(pod)
        elif self.has_room:
            self._open(pod)

    def _see_to_group(self, name):
        members = self._members(name)
        total = int(members[0]["metadata"]["annotations"][TOTAL])
        active = [pod for pod in members if _counts(pod)]
        inactive = [pod for pod in members if not _counts(pod)]
        namespace = members[0]["metadata"]["namespace"]
        place = Place("kueue.x-k8s.io", VERSION, "workloads", namespace, name)
        if self._is_there(place) and self._is_over(members, total):
            self.finished.add(name)
        if name in self.finished:
            for pod in members:
                self._let_go(pod)
        elif not self._is_there(place):
            if name in self._had_workload:
                for pod in members:
                    self._let_go(pod)
                    self._delete(pod, 0)
            elif len(active) >= total:
                for pod in inactive:
                    self._let_go(pod)
                self._create(place, {"metadata": {"name": name}})
                self._had_workload.add(name)
        else:
            for pod in active[total:]:
                self._let_go(pod)
                self._delete(pod, 0)
            for pod in inactive[: max(0, len(members) - total)]:
                self._let_go(pod)
            if self.has_room and len(active) >= total:
                for pod in active[:total]:
                    self._open(pod)

    def _is_over(self, members, total):
        phases = [pod["status"]["phase"] for pod in members]
        is_last = any(p["metadata"]["annotations"].get(LAST) == "false" for p in members)
        all_ended = all(phase in ENDED for phase in phases)
        return phases.count("Succeeded") == total or (all_ended and is_last)

    def _is_there(self, place):
        try:
            self._objects.get(place)
        except RefusalError:
            return False
        return True

    def _members(self, group):
        return [pod for pod in self.pods() if _labels(pod).get(GROUP) == group]

    def _open(self, pod):
        if pod["spec"].get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]:
            self._merge(pod, {"spec": {"schedulingGates": None}})

    def _let_go(self, pod):
        if pod["metadata"].get("finalizers"):
            self._merge(pod, {"metadata": {"finalizers": None}})

    def _merge(self, pod, change, part=""):
        self._try(lambda: self._objects.merge(_place(pod, part), change))

    def _delete(self, pod, grace_s):
        self._try(lambda: self._objects.delete(_place(pod), {"gracePeriodSeconds": grace_s}))

    def _try(self, act):
        try:
            act()
        except RefusalError as error:
            if error.code != 404:
                raise


def _labels(pod):
    return pod["metadata"].get("labels") or {}


def _counts(pod):
    is_waiting = not pod["spec"].get("nodeName")
    is_lost = "deletionTimestamp" in pod["metadata"] and is_waiting
    return not is_lost and pod["status"]["phase"] != "Failed"


def _container(pod, state):
    return {"name": pod["spec"]["containers"][0]["name"], "ready": False, "state": state}


def _place(pod, part=""):
    metadata = pod["metadata"]
    return Place("", "v1", "pods", metadata["namespace"], metadata["name"], part)
