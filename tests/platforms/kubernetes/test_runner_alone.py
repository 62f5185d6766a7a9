"""What the runner does of itself, against a server of this process that says what a test wants."""

import pytest
from support.fake_api import Answer, FakeApi, refusal

from elastic.errors import PlatformError
from elastic.platforms.kubernetes.manifests import Owner
from elastic.platforms.kubernetes.podspec import Job
from elastic.platforms.kubernetes.runner import KubernetesReplicaRunner
from elastic.spec.job import JobSpec

SPEC = JobSpec(
    job_name="j", model_zoo="z", model_def="m.C", training_data_dir="d", minibatch_size=1
)
JOB = Job(SPEC, "team", "s", "image")
NOTHING = {"items": [], "metadata": {"resourceVersion": "1"}}


@pytest.fixture
def make_runner(tmp_path):
    runners = []

    def make(api):
        runners.append(
            KubernetesReplicaRunner(
                api.cluster(patience_s=0.0), JOB, Owner("m", "master-uid"), tmp_path
            )
        )
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


@pytest.mark.parametrize("kind", ["pods", "configmaps"])
def test_a_start_of_which_a_part_was_refused_can_be_tried_again(make_runner, kind):
    refused = []

    def answer(seen):
        if "watch=true" in seen.path:
            return Answer(silent=True)
        if f"/{kind}?" in seen.path and not refused:
            refused.append(seen)
            return refusal(403, "not yet")
        return Answer(body=NOTHING)

    with FakeApi(answer=answer) as api:
        runner = make_runner(api)
        with pytest.raises(PlatformError, match="not yet"):
            runner.start()
        runner.start()
        assert runner.observe() == []
        lists = [seen.path for seen in api.requests if "watch=true" not in seen.path]
        runner.close()
    assert len(refused) == 1
    assert len(lists) == 3, "what was listed is followed, and listed no more"
