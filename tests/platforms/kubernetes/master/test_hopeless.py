"""A master that finds its job hopeless ends well, whether or not its end is taken."""

import pytest
from support.fake_platform import FakeReplicaRunner

from elastic.errors import PlatformError
from elastic.platforms.base import StatusRefusedError
from elastic.platforms.kubernetes.master.environment import begin_life
from elastic.platforms.kubernetes.objects import manifests
from elastic.platforms.kubernetes.objects.podspec import Job
from elastic.spec.job import JobSpec
from elastic.spec.status import JobPhase

SPEC = JobSpec(
    job_name="mnist", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)


class Runner(FakeReplicaRunner):
    error = None

    def publish_status(self, status):
        super().publish_status(status)
        if self.error is not None:
            raise self.error


def late():
    """The pod of a master that began long after its job had been given up."""
    pod = manifests.master_pod(Job(SPEC, "team", "uid", "image"))
    pod["metadata"]["creationTimestamp"] = "1970-01-01T00:00:00Z"
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    pod["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "elastic", "state": running, "restartCount": 0}],
    }
    return pod


@pytest.mark.parametrize("error", [None, StatusRefusedError("too long")])
def test_its_container_is_not_restarted_for_an_end_that_is_refused(tmp_path, error):
    runner = Runner()
    runner.error = error
    assert begin_life(tmp_path, late, runner, SPEC) is None
    assert runner.statuses[-1].phase is JobPhase.FAILED


def test_one_that_may_be_taken_later_is_for_the_next_life(tmp_path):
    runner = Runner()
    runner.error = PlatformError("away")
    with pytest.raises(PlatformError, match="away"):
        begin_life(tmp_path, late, runner, SPEC)
