"""Stands in for a master in a pod, so that a test says what it does: $MASTER_DOES.

Only the standard library is there. It reads and writes its ConfigMaps as a master does, with its
service account.

obey    publishes Running, and when it is cancelled, Cancelled
lead    does so too, and tells of workers as running, also with its last word
finish  publishes Succeeded and exits with 0
fail    publishes Failed and exits with 0
crash   exits with 1 in every life, with last words
deaf    publishes Running, and neither reads what users want nor heeds SIGTERM
mute    exits with 0 and publishes nothing
"""

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
JOB = os.environ["ELASTIC_JOB_NAME"]
NAMESPACE = os.environ["ELASTIC_NAMESPACE"]
HOST = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
MAPS = f"{HOST}/api/v1/namespaces/{NAMESPACE}/configmaps"
UID = json.loads(Path("/elastic/job/submission.json").read_text())["uid"]


def call(method, url, body=None, kind="application/json"):
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    request.add_header("Content-Type", kind)
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        return json.load(answer)


def publish(phase, **more):
    """Write the status as a master does."""
    name = f"elastic-{JOB}-status"
    status = {"job_name": JOB, "phase": phase, "started_s": time.time(), **more}
    labels = {"app": "elastic", "elastic-job-name": JOB, "elastic-submission": UID}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "data": {"status.json": json.dumps(status)},
    }
    try:
        call("PATCH", f"{MAPS}/{name}", body, "application/merge-patch+json")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        call("POST", MAPS, body)


def control():
    """What users want."""
    return json.loads(call("GET", f"{MAPS}/elastic-{JOB}")["data"]["control.json"])


def main():
    does = os.environ["MASTER_DOES"]
    # To where last words go as well: an engine may mix the two streams in any order.
    print(f"master does {does}", file=sys.stderr, flush=True)
    if does == "finish":
        publish("Succeeded", progress={"model_version": 7}, ended_s=time.time())
        print("last line")
    elif does == "fail":
        publish("Failed", reason="BadRecords", ended_s=time.time())
        print("last line")
    elif does == "crash":
        sys.exit("these are its last words")
    elif does == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        publish("Running")
        time.sleep(3600)
    elif does in ("obey", "lead"):
        # Not the default of a container's first process, which is to ignore it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        count, rows = 0, []
        while not (wanted := control())["cancelled"]:
            size = wanted["num_workers"] or 1
            if does == "lead":
                rows = [{"index": i, "launch": 1, "phase": "Running"} for i in range(size)]
            publish("Running", desired_workers=size, workers=rows)
            count += 1
            print(f"master line {count}")
            time.sleep(0.5)
        end = {"reason": "Cancelled", "message": "the master says so", "ended_s": time.time()}
        publish("Cancelled", workers=rows, **end)


main()
