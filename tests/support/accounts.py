"""Service accounts: to act as one, and to have the API server count the requests of one apart."""

import re
from pathlib import Path

import yaml

from elastic.platforms.kubernetes.api.cluster import Cluster
from elastic.platforms.kubernetes.api.resources import PODS, SERVICE_ACCOUNTS
from elastic.platforms.kubernetes.api.transport import find_access
from elastic.platforms.kubernetes.job import installing
from elastic.platforms.kubernetes.job.installing import apply
from support.cluster import KUBECONFIG, eventually, exists

_FLOWS = "flowcontrol.apiserver.k8s.io"
_DISPATCHED = re.compile(
    r'apiserver_flowcontrol_dispatched_requests_total\{flow_schema="([^"]+)".*\} (\S+)'
)
_ACCOUNT = "counted"
_TOKEN_LIFE_S = 3600


class CountedAccount:
    """A service account with a master's rights in a namespace, and a flow schema of its own.

    The API server counts what it lets through of each flow; watches, which stay open, it does not.
    """

    def __init__(self, cluster, namespace):
        self._cluster = cluster
        self._namespace = namespace
        self._flow = f"counted-{namespace}"
        list(apply(cluster, installing.master_access(namespace, _ACCOUNT)))
        group = cluster.get(f"/apis/{_FLOWS}")["preferredVersion"]["groupVersion"]
        self._flows_path = f"/apis/{group}/flowschemas"
        cluster.create(self._flows_path, self._schema(group))

    def close(self):
        self._cluster.delete(f"{self._flows_path}/{self._flow}")

    def connect(self, pace):
        """A connection as this account, from whose first request on all are counted."""
        token = token_of(self._cluster, self._namespace, _ACCOUNT)
        found = find_access(KUBECONFIG)
        found.configuration.api_key = {"authorization": token}
        found.configuration.api_key_prefix = {"authorization": "Bearer"}
        found.configuration.refresh_api_key_hook = None
        cluster = Cluster(found, pace)
        pods = PODS.path(self._namespace)
        # A new flow is known after a moment.
        eventually(lambda: cluster.get(pods, {"limit": "1"}) and self.requests() > 0)
        return cluster

    def requests(self):
        """How many of its requests there were, by the API server's own count."""
        for line in self._cluster.lines("/metrics", {}):
            found = _DISPATCHED.match(line.decode())
            if found and found[1] == self._flow:
                return int(float(found[2]))
        return 0

    def _schema(self, group):
        account = {"name": _ACCOUNT, "namespace": self._namespace}
        everything = {
            "verbs": ["*"],
            "apiGroups": ["*"],
            "resources": ["*"],
            "namespaces": ["*"],
            "clusterScope": True,
        }
        rule = {
            "subjects": [{"kind": "ServiceAccount", "serviceAccount": account}],
            "resourceRules": [everything],
        }
        return {
            "apiVersion": group,
            "kind": "FlowSchema",
            "metadata": {"name": self._flow},
            "spec": {
                "priorityLevelConfiguration": {"name": "workload-low"},
                "matchingPrecedence": 10,
                "rules": [rule],
            },
        }


def act_as(cluster, namespace, account, folder):
    """A kubeconfig, in a folder, of a service account, which is made where it is not there."""
    path = SERVICE_ACCOUNTS.path(namespace, account)
    if exists(cluster, path) is None:
        cluster.create(SERVICE_ACCOUNTS.path(namespace), {"metadata": {"name": account}})
    config = yaml.safe_load(Path(KUBECONFIG).read_text())
    [named] = config["clusters"]
    context = {"cluster": named["name"], "user": account, "namespace": namespace}
    config["users"] = [{"name": account, "user": {"token": token_of(cluster, namespace, account)}}]
    config["contexts"] = [{"name": account, "context": context}]
    config["current-context"] = account
    file = folder / f"{account}.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


def token_of(cluster, namespace, account):
    """A token of a service account, by the API that every version has."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "metadata": {},
        "spec": {"expirationSeconds": _TOKEN_LIFE_S},
    }
    path = f"{SERVICE_ACCOUNTS.path(namespace, account)}/token"
    return cluster.create(path, request)["status"]["token"]
