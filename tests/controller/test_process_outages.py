"""Controllers whose API server is away, or lets them do less than they need."""

import random
import time

import pytest
from support.controllers import wait_for
from support.handover import PATIENCE_S, TAKEOVER_S, cluster
from support.plays_of_kinds import cast

FEW = {"elastic": 2, "tf": 1, "chief-tf": 1, "tolerant-training": 1, "training": 1}
SEED = 3


@pytest.fixture
def scene(tmp_path):
    with cluster(tmp_path, SEED) as scene:
        yield scene


def begun(scene, num_faults, counts=None):
    """Some jobs that run, and nothing left to be done for them."""
    plays = cast(scene, SEED, num_faults, counts or FEW)
    scene.submit(plays)
    scene.is_quiet()
    return plays


def versions(scene, plays):
    """Of all jobs and of all pods."""
    found = [each for play in plays for each in (play.job, *play.pods())]
    return {each["metadata"]["uid"]: each["metadata"]["resourceVersion"] for each in found}


@pytest.mark.parametrize(
    "away_s",
    [
        # Longer than a lease.
        pytest.param(10, id="10-s"),
        pytest.param(60, id="60-s", marks=pytest.mark.soak),
    ],
)
def test_an_api_server_that_is_away_changes_nothing(scene, away_s):
    """Lasts as long as it is away, and until one leads again."""
    plays = begun(scene, num_faults=1)
    changed, *others = plays
    before, num_writes = versions(scene, others), len(scene.account.writes)
    with scene.api.away():
        # The clusters' own parts go on, as the nodes do.
        scene.take_steps([changed], random.Random(SEED), 1)
        time.sleep(away_s)
    back_s = time.monotonic()
    wait_for(lambda: len(scene.account.writes) > num_writes, PATIENCE_S, scene.deployment.logs)
    assert scene.account.writes[num_writes].time_s - back_s <= TAKEOVER_S
    scene.is_quiet()
    assert versions(scene, others) == before
    scene.play_to_the_end(plays, random.Random(SEED))
    assert list(scene.account.problems(plays)) == []


def test_a_right_that_is_lacking_is_named_once_and_the_rest_goes_on(scene):
    scene.api.deny("services", "create")
    scene.api.deny("tfjobs", "patch")
    counts = {"elastic": 2, "tf": 2, "training": 1, "tolerant-training": 1}
    plays = cast(scene, SEED, 0, counts)
    waiting = [play for play in plays if not hasattr(play, "is_tolerant")]
    going = [play for play in plays if hasattr(play, "is_tolerant")]
    scene.submit(waiting, is_whole=False)
    scene.play_to_the_end(going, random.Random(SEED))
    log = scene.account.leader.log()
    for right in ('create resource "services"', 'patch resource "tfjobs"'):
        named = [line for line in log.splitlines() if right in line]
        assert len(named) == 1, named
    for play in waiting:
        told = scene.events(type="Warning")
        of_job = [each for each in told if each["involvedObject"]["name"] == play.name]
        assert [each["reason"] for each in of_job] == [
            "FailedPatchStatus" if play.name.startswith("tf") else "FailedCreateService"
        ]
    scene.api.allow("services")
    scene.api.allow("tfjobs")
    scene.play_to_the_end(plays, random.Random(SEED))
    assert list(scene.account.problems(plays)) == []
