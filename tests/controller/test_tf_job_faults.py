"""TFJobs under faults in any order: what never happens, and how they end all the same."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tf_job_world import World, node, tf_job

from elastic.controller.kinds.placing import rooms_of
from elastic.platforms.kubernetes.api.resources import PODS

POLICIES = ["Always", "OnFailure", "Never", "ExitCode"]
NODES = ["a", "b", "c"]

faults = st.one_of(
    st.tuples(st.just("exit"), st.integers(0, 6), st.sampled_from([0, 1, 137])),
    st.tuples(st.just("vanish"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("evict"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("remove"), st.integers(0, 6), st.just(0)),
    st.tuples(st.just("cordon"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("crowd"), st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("edit"), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("reap"), st.just(0), st.just(0)),
    st.tuples(st.just("run"), st.just(0), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 400), st.just(0)),
    st.tuples(st.just("step"), st.just(0), st.just(0)),
)


def strike(world, fault):
    """Let one thing happen."""
    what, number, more = fault
    live = world.live()
    name = live[number % len(live)] if live else None
    match what:
        case "exit" if name:
            world.exit(name, more)
        case "vanish" if name:
            world.vanish(name)
        case "evict" if name:
            world.set(name, "Failed", reason="Evicted")
        case "remove" if name:
            world.objects[PODS, name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        case "cordon":
            world.nodes[number]["spec"] = {"unschedulable": more}
        case "crowd":
            world.others = [crowd(NODES[number], more)] if more else []
        case "edit":
            world.edit(Worker=number)
        case "reap":
            world.reap()
        case "run":
            pending = [n for n, o in world.pods().items() if "status" not in o]
            if pending:
                world.run(*pending)
        case "wait":
            world.wait(number)


def crowd(where, cpu):
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "metadata": {"name": "crowd", "namespace": "x", "uid": "crowd"},
        "spec": {"nodeName": where, "containers": [container]},
        "status": {"phase": "Running"},
    }


def check(world, fits_before):
    """What holds after every pass; names are keys of the world, so one index has one pod."""
    for room in rooms_of(world.nodes, [*world.others, *world.pods().values()]):
        if fits_before[room.name]:
            assert min(room.free.values()) >= 0, f"{room.name} has {room.free}"


def fits(world):
    rooms = rooms_of(world.nodes, [*world.others, *world.pods().values()])
    return {room.name: min(room.free.values()) >= 0 for room in rooms}


@settings(max_examples=100)
@given(
    policy=st.sampled_from(POLICIES),
    ps=st.integers(0, 2),
    workers=st.integers(1, 5),
    low=st.integers(1, 5),
    clean=st.sampled_from(["None", "Running", "All"]),
    backoff=st.sampled_from([None, 0, 2, 100]),
    history=st.lists(faults, max_size=25),
)
def test_whatever_happens(policy, ps, workers, low, clean, backoff, history):
    spec = {"min_instances": min(low, workers), "max_instances": 5, "cleanPodPolicy": clean}
    if backoff is not None:
        spec["backoffLimit"] = backoff
    nodes = [node(name, cpu="3", memory="8Gi") for name in NODES]
    world = World(tf_job(ps=ps, workers=workers, policy=policy, **spec), *nodes)
    for fault in history:
        strike(world, fault)
        before = fits(world)
        world.step()
        check(world, before)
    is_over = _ended(world)
    _heal(world)
    assert world.condition("Succeeded") == "True" or is_over or _ended(world)
    _check_end(world, clean)
    writes = world.writes
    world.settle()
    assert world.writes == writes, "an unchanged pass wrote"
    assert _told_once(world)


def _heal(world):
    """Everything works again, and the job comes to its end."""
    world.others = []
    for each in world.nodes:
        each["spec"] = {}
    world.edit(min_instances=1)
    for _ in range(40):
        world.reap().wait(300).settle()
        pending = [n for n, o in world.pods().items() if "status" not in o]
        if pending:
            world.run(*pending).settle()
        if _ended(world):
            return
        if "job1-worker-0" in world.live() and not pending:
            world.exit("job1-worker-0", 0).settle()
    raise AssertionError(f"no end: {world.status}")


def _ended(world):
    conditions = world.job.get("status", {}).get("conditions", [])
    is_true = {c["type"]: c["status"] == "True" for c in conditions}
    return is_true.get("Succeeded", False) or is_true.get("Failed", False)


def _check_end(world, clean):
    world.settle()
    phases = {n: world.pods()[n].get("status", {}).get("phase") for n in world.live()}
    if clean == "All":
        assert phases == {}
    if clean == "Running":
        assert set(phases.values()) <= {"Succeeded", "Failed"}
    conditions = {c["type"]: c["status"] for c in world.status["conditions"]}
    assert [conditions.get(t) for t in ("Succeeded", "Failed")].count("True") == 1
    assert conditions.get("Running") != "True"
    assert world.status["completionTime"]


def _told_once(world):
    told = Counter(world.reasons())
    return all(told[r] <= 1 for r in ("TFJobCreated", "TFJobSucceeded", "TFJobFailed"))


@settings(max_examples=40)
@given(st.data())
def test_a_controller_that_dies_between_any_two_writes(data):
    """Each action may be the last of its controller: the next one goes on from what is there."""
    world = World(tf_job(ps=1, workers=4, min_instances=2, policy="ExitCode"), node("a", cpu="5"))
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()) and world.live():
            world.exit(data.draw(st.sampled_from(world.live())), 137)
        outcome = world._kind.reconcile(world.observed())
        cut = data.draw(st.integers(0, len(outcome.actions) + 1))
        for action in outcome.actions[:cut]:
            world._apply(action)
        if cut > len(outcome.actions):
            world.job = world.job | {"status": outcome.status}
        world.reap()
    world.wait(300).settle()
    failed = Counter(n.message for n in world.notes if n.reason == "TFJobFailed")
    assert not failed
    world.reap().settle()
    # What was decided of its size when it started stays: it started with the room there was.
    assert len(world.live()) == 1 + world.status["size"]
    assert world.status["size"] == 4


KEYS = [
    "PS",
    "Worker",
    "Chief",
    "Evaluator",
    "replicas",
    "restartPolicy",
    "template",
    "spec",
    "metadata",
    "containers",
    "name",
    "resources",
    "limits",
    "requests",
    "cpu",
    "annotations",
    "kubeshare/gpu_mem",
    "kubeshare/gpu_request",
    "kubeshare/gpu_limit",
    "key",
    "tolerations",
    "affinity",
    "nodeAffinity",
    "values",
    "operator",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
    "ports",
    "env",
    "labels",
    "containerPort",
    "initContainers",
    "nodeSelector",
    "overhead",
    "nodeName",
]


@settings(max_examples=200)
@given(
    spec=st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(max_size=8)
        | st.sampled_from(["tensorflow", "4", "8Gi", "Equal", "In", "0.5"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(KEYS),
                inner,
                max_size=4,
            )
        ),
        max_leaves=25,
    ),
    at=st.sampled_from(["spec", "roles", "template", "pod", "container"]),
)
def test_no_spec_stops_the_controller(spec, at):
    job = tf_job(workers=1)
    worker = job["spec"]["tfReplicaSpecs"]["Worker"]
    match at:
        case "spec":
            job["spec"] = spec
        case "roles":
            job["spec"]["tfReplicaSpecs"] = spec
        case "template":
            worker["template"] = spec
        case "pod" if isinstance(spec, dict):
            worker["template"]["spec"] |= spec
        case "container" if isinstance(spec, dict):
            worker["template"]["spec"]["containers"][0] |= spec
    world = World(job, has_kubeshare=True).settle()
    assert world.live() or world.condition("Failed") or world.condition("Scheduled") == "False"
