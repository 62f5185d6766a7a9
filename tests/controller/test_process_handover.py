"""Controllers that die at any moment, before an API server in memory: what runs does not notice."""

import random

import pytest
from support.controllers import wait_for
from support.handover import TAKEOVER_S, Moment, cluster
from support.plays_of_kinds import cast
from support.seeds import drawn

NUM_JOBS = 20
NUM_SEEDS = 1000


def _cases():
    (seed,) = drawn(range(NUM_SEEDS), 1, "handover")
    yield pytest.param(5, 1, seed, id=f"5-kills-{seed}")
    soak = [pytest.mark.soak, pytest.mark.timeout(3600)]
    yield pytest.param(50, 6, seed, id=f"50-kills-{seed}", marks=soak)


@pytest.mark.parametrize(("num_kills", "num_faults", "seed"), list(_cases()))
def test_leaders_are_killed_and_nobody_notices(num_kills, num_faults, seed, tmp_path):
    """Each kill costs the time of a lease: eleven seconds in which nothing else can be done."""
    rng = random.Random(f"kills {seed}")
    with cluster(tmp_path, seed) as scene:
        plays = cast(scene, seed, num_faults)
        assert len(plays) == NUM_JOBS
        told, slow = [], []
        for number in range(num_kills):
            rounds_left = 2 * (num_kills - number)
            each = sum(play.num_left for play in plays) // rounds_left
            assert each >= 1, "nothing would be left to be done after the last kill"
            moment = Moment(rng)
            scene.account.kill_at(moment)
            told += [f"KILL {moment}", *scene.take_steps(plays, rng, each)]
            killed_s = scene.account.is_killed(rng.uniform(0, 2.0))
            told += ["KILLED", *scene.take_steps(plays, rng, each)]
            first_s = wait_for(lambda at_s=killed_s: scene.account.first_write_since(at_s),
                               4 * TAKEOVER_S, scene.deployment.logs)  # fmt: skip
            slow += [first_s - killed_s] if first_s - killed_s > TAKEOVER_S else []
            wait_for(scene.deployment.stands_by, 4 * TAKEOVER_S, scene.deployment.logs)
        scene.play_to_the_end(plays, rng)
        problems = list(scene.account.problems(plays))
        problems += [each["message"] for each in scene.events(reason="ReconcileFailed")]
    assert not problems, "\n".join([*problems, "after", *told])
    assert not slow, f"took over after {slow} s"
