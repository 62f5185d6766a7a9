"""What the logs say of replicas without a node, of which the API server gives an empty log."""

import pytest
from support.fake_api import Answer, FakeApi
from support.pods import pod, running

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.job.logs import read_logs

UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    ],
}


def waiting(index, status=UNSCHEDULABLE):
    made = pod(status, index=index, namespace="team")
    del made["spec"]["nodeName"]
    return made


def read(pods, *names):
    with FakeApi(Answer(body=b"2026-01-01T00:00:00.1Z step 1\n")) as api:
        return [(line.replica, line.text) for line in read_logs(api.cluster(), pods, names, None)]


@pytest.mark.parametrize(
    ("status", "why"),
    [
        pytest.param(UNSCHEDULABLE, "Unschedulable: no room", id="no-room"),
        pytest.param({"phase": "Pending"}, "it waits for a node", id="just-created"),
    ],
)
def test_the_only_one_says_what_it_waits_for(status, why):
    with pytest.raises(PlatformError, match=f"^worker-0 has written nothing yet: {why}$"):
        read([waiting(0, status)])


def test_among_others_it_is_passed_over_unless_it_was_named():
    pods = [waiting(0), pod(running(), index=1, namespace="team")]
    assert read(pods) == [("worker-1", "step 1")]
    with pytest.raises(PlatformError, match=r"^worker-0 has written nothing yet: Unschedulable"):
        read(pods, "worker-0")
