"""Whatever a spec is: it is refused, or fails with its field and value, or runs; others go on."""

import random
import re
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from support.api_objects import Place, RefusalError
from support.handover import add_nodes
from support.invalid_objects import kinds
from support.plays_of_kinds import TFPlay
from support.random_specs import junk, random_object
from support.seeds import drawn_by
from support.structural import refusals
from support.tf_job_world import node
from support.toy_kind import PAUSES, TEAM, soon

from elastic.controller.assembly import assembled, everything
from elastic.controller.kinds.tf_job import TFJobs
from elastic.controller.machinery.engine import Engine
from elastic.controller.reconciling import ClusterView, Observed
from elastic.controller.resources.common import parts_of
from elastic.controller.resources.definitions import definitions

RECONCILERS = {kind.resource.kind: kind for kind in assembled().make_kinds(everything).values()}
RECONCILERS["TFJob"] = TFJobs(has_kubeshare=True)
SCHEMAS = {
    each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for each in definitions()
}
TABLES = [kind for kind in kinds() if kind.VALID["kind"] in RECONCILERS]
COUNTS = [
    pytest.param(400, drawn_by(), id=f"400-{drawn_by()}"),
    pytest.param(10_000, "soak", id="10000", marks=pytest.mark.soak),
]
NUM_PASSES = 4
NUM_NODES = 30
WAVE = 200
"""Objects that are there at once."""


def objects(seed, count):
    """Of all kinds in turn, each with the table of its kind."""
    for number in range(count):
        table = TABLES[number % len(TABLES)]
        rng = random.Random(f"{seed} {number}")
        yield table, random_object(table.VALID, f"job-{number}", rng), rng


def said(status):
    """Why a job has failed by its status; empty where it has not."""
    if status.get("phase") == "failed":
        return status["reason"]
    conditions = status.get("conditions", ())
    failed = [each for each in conditions if (each["type"], each["status"]) == ("Failed", "True")]
    return failed[0]["message"] if failed else ""


def passes(kind, job):
    """Passes until the kind acts or has nothing to say; its last outcome."""
    for _ in range(NUM_PASSES):
        view = ClusterView([node("node-a", cpu="64", memory="512Gi", gpus=8)], [])
        outcome = kind.reconcile(Observed(job, {each: [] for each in kind.children}, 1.7e9, view))
        if outcome.actions or outcome.status == job.get("status"):
            return outcome
        job = {**job, "status": outcome.status}
    raise AssertionError(f"tells something new with each of {NUM_PASSES} passes: {job}")


@pytest.mark.parametrize(("count", "seed"), COUNTS)
def test_every_object_is_refused_or_fails_with_its_field_or_runs(count, seed):
    """Also what its schema refuses is no matter: a cluster may have an older one."""
    ways = {"refused": 0, "failed": 0, "runs": 0}
    for table, job, rng in objects(seed, count):
        metadata = {"uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
        job["metadata"] |= metadata
        refused = refusals(job, SCHEMAS[job["kind"]])
        outcome = passes(RECONCILERS[job["kind"]], job)
        problem = table.read(job).problem
        if problem:
            assert problem in said(outcome.status), job
            assert re.match(r"(spec|metadata)[.\w/-]*(=| is | has | have |: )", problem), problem
            assert not outcome.actions
            ways["refused" if refused else "failed"] += 1
        elif not refused:
            is_waiting = job["kind"] == "TFJob" and not said(outcome.status)
            assert outcome.actions or is_waiting, (job, outcome)
            ways["runs"] += 1
        if rng.random() < 0.2:
            passes(RECONCILERS[job["kind"]], job | {"status": {"phase": junk(rng), "x": junk(rng)}})
    assert all(ways.values()), ways
    assert sum(ways.values()) >= 0.9 * count, ways


@pytest.mark.parametrize(("count", "seed"), COUNTS)
def test_no_object_that_a_schema_lets_through_stops_the_engine(world, count, seed, caplog):
    """Then a job that is as it should be still comes to run."""
    api = world.api
    api.objects.check = _refuse_pods_that_are_none
    makers = list(assembled().make_kinds(lambda _: False).values())
    api.serve(*(each.resource for each in makers))
    add_nodes(api, [f"node-{number}" for number in range(NUM_NODES)])
    engine = Engine(api.cluster(), makers, TEAM, 4, PAUSES)
    engine.start()
    try:
        soon(lambda: engine.is_synced)
        jobs = [job for _, job, _ in objects(seed, count)]
        let_through = [job for job in jobs if not refusals(job, SCHEMAS[job["kind"]])]
        for wave in range(0, len(let_through), WAVE):
            places = [_create(api, job) for job in let_through[wave : wave + WAVE]]
            soon(lambda here=places: all(_has_status(api, each) for each in here), 120.0)
            for place in places:
                api.objects.delete(place, {})
        cluster = SimpleNamespace(objects=api.objects, kubelet=world.kubelet)
        good = TFPlay(cluster, "good", random.Random(seed), 0)
        good.step()
        soon(good.is_whole, 60.0)
    finally:
        engine.stop()
    assert len(let_through) > 0.1 * count
    assert "cannot be reconciled" not in caplog.text


def _refuse_pods_that_are_none(place, item):
    """As an API server does: templates are anything at all, pods are not."""
    if place.plural == "pods":
        try:
            parts_of(item)
        except ValidationError as error:
            raise RefusalError(422, "Invalid", str(error)) from error


def _create(api, job):
    resource = RECONCILERS[job["kind"]].resource
    collection = (resource.group, resource.version, resource.plural, TEAM)
    api.objects.create(Place(*collection), job)
    return Place(*collection, job["metadata"]["name"])


def _has_status(api, place):
    return bool(api.objects.get(place).get("status"))
