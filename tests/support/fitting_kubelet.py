"""A kubelet with a scheduler that looks for room: nodes of so many cores, and pods that wait."""

from elastic.controller.kinds.placing import needs_of
from elastic.spec.values import NANO
from support.api_objects import Place, RefusalError
from support.kubelet_in_memory import PODS, Kubelet

NODES = Place("", "v1", "nodes")


class FittingKubelet(Kubelet):
    """Runs a pod on the first node with enough CPU for it; the others wait, and are tried again."""

    def __init__(self, api, cores):
        """Args: by the name of a node, its cores; they are made here."""
        super().__init__(api)
        self._cores = cores
        for name, count in cores.items():
            made = node(name, count)
            api.objects.create(NODES, made)
            api.objects.merge(Place("", "v1", "nodes", "", name, "status"), made)

    def change(self, name, allocatable):
        """Have a node give more, or other things."""
        place = Place("", "v1", "nodes", "", name, "status")
        self._objects.merge(place, {"status": {"allocatable": allocatable}})

    def step(self):
        is_news = super().step()
        return is_news or any(self._fits(pod) for pod in self._waiting.values())

    def _act(self, place, pod):
        is_new = pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]
        if is_new and not pod["spec"].get("nodeName"):
            where = self._fits(pod)
            if where is None:
                return False
            try:
                pod = self._objects.merge(place, {"spec": {"nodeName": where}})
            except RefusalError:
                return True
        return super()._act(place, pod)

    def _fits(self, pod):
        need = _cpu(pod)
        free = self._free()
        return next((name for name in sorted(free) if free[name] >= need), None)

    def _free(self):
        free = dict(self._cores)
        items, _ = self._objects.list(PODS)
        for pod in items:
            on = pod["spec"].get("nodeName")
            if on in free and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                free[on] -= _cpu(pod)
        return free


def _cpu(pod):
    return needs_of({"containers": [], **pod["spec"]}).get("cpu", 0) / NANO


def node(name, cores, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(cores), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
