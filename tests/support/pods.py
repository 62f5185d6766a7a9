"""Pods as an API server tells them, cut down to what observation reads."""

import json

UID = "uid-1"
DONE_WORDS = json.dumps({"reason": "Completed", "message": ""})
"""What a worker says that has completed."""


def pod(status=None, launch=1, index=0, uid=UID, deleted=False, name=None, **metadata):
    """A worker pod with a status."""
    labels = {
        "app": "elastic",
        "elastic-job-name": "j",
        "elastic-submission": "s",
        "elastic-replica-type": "worker",
        "elastic-replica-index": str(index),
        "elastic-launch": str(launch),
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    return {
        "metadata": {
            "name": name or f"elastic-j-worker-{index}",
            "uid": uid,
            "labels": labels,
            "ownerReferences": [{"uid": "master-uid"}],
            **metadata,
        },
        "spec": {
            "nodeName": "node-7",
            "containers": [
                {"name": "sidecar"},
                {"name": "elastic", "resources": {"limits": {"memory": "64Mi"}}},
            ],
        },
        "status": status or {"phase": "Pending"},
    }


def with_state(state, phase="Running", **status):
    """The status of a pod whose container is in a state; a sidecar stands before it."""
    entries = [
        {"name": "sidecar", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
        {"name": "elastic", "state": state},
    ]
    return {"phase": phase, "containerStatuses": entries, **status}


def running(**status):
    return with_state({"running": {"startedAt": "2026-01-01T00:00:10Z"}}, **status)


def terminated(code, phase="Failed", reason="Error", message="", pod_reason=None, **state):
    status = {"reason": pod_reason, "message": "the cluster's words"} if pod_reason else {}
    return with_state(
        {
            "terminated": {
                "exitCode": code,
                "reason": reason,
                "message": message,
                "startedAt": "2026-01-01T00:00:10Z",
                **state,
            }
        },
        phase,
        **status,
    )


def waiting(reason, message=""):
    return with_state({"waiting": {"reason": reason, "message": message}}, "Pending")
