"""Room on the node of the test's cluster that runs containers, and pods that take it."""


def free_cpu(cluster):
    """Cores of the node that runs containers which no pod has asked for."""
    nodes = cluster.get("/api/v1/nodes", {"labelSelector": "elastic.test/hollow!=true"})["items"]
    [node] = nodes
    name = node["metadata"]["name"]
    pods = cluster.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={name}"})["items"]
    asked = sum(
        _cores(container["resources"].get("requests", {}).get("cpu", "0"))
        for pod in pods
        if pod["status"]["phase"] in ("Pending", "Running")
        for container in pod["spec"]["containers"]
    )
    return _cores(node["status"]["allocatable"]["cpu"]) - asked


def filler(name, cpu, priority_class=None):
    """A pod that asks for so many cores, and does nothing with them."""
    spec = {
        "containers": [
            {
                "name": "filler",
                "image": "python:3.11-slim",
                "imagePullPolicy": "IfNotPresent",
                "command": ["python", "-c", "import time; time.sleep(100000)"],
                "resources": {"requests": {"cpu": f"{round(cpu * 1000)}m"}},
            }
        ],
        "terminationGracePeriodSeconds": 0,
    }
    if priority_class is not None:
        spec["priorityClassName"] = priority_class
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _cores(amount):
    return float(amount[:-1]) / 1000 if amount.endswith("m") else float(amount)
