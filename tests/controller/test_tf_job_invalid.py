"""TFJobs that cannot be run: each is refused with the field, its value, and what it should be."""

import copy

import pytest
from support.tf_job_world import World, replicas, tf_job

ROLES = ("spec", "tfReplicaSpecs")
WORKER = (*ROLES, "Worker")
POD = (*WORKER, "template", "spec")
CONTAINER = (*POD, "containers", 0)
NOTES = (*WORKER, "template", "metadata")
AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"
GONE = object()


def share(**changes):
    written = {"request": "0.5", "limit": "1.0", "mem": "1024"} | changes
    return {"annotations": {f"kubeshare/gpu_{k}": v for k, v in written.items() if v is not None}}


def required(**expression):
    return {"nodeAffinity": {AFFINITY: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


INVALID = [
    (("spec",), "train", "spec='train'"),
    (("spec",), GONE, "spec.tfReplicaSpecs is missing"),
    (ROLES, GONE, "spec.tfReplicaSpecs is missing"),
    (ROLES, {"PS": replicas()}, "spec.tfReplicaSpecs has PS: add Worker or Chief"),
    (ROLES, {}, "spec.tfReplicaSpecs has nothing: add Worker or Chief"),
    (ROLES, {"Workers": replicas()}, "spec.tfReplicaSpecs has Workers: add Worker or Chief"),
    (ROLES, {"Chief": replicas(), "Master": replicas()}, "spec.tfReplicaSpecs.Master is the old"),
    (ROLES, {"Chief": replicas(2)}, "spec.tfReplicaSpecs.Chief.replicas=2: "),
    ((*ROLES, "Evaluator"), replicas(3), "spec.tfReplicaSpecs.Evaluator.replicas=3: "),
    ((*WORKER, "replicas"), 0, "spec.tfReplicaSpecs.Worker.replicas=0: "),
    ((*WORKER, "replicas"), "many", "spec.tfReplicaSpecs.Worker.replicas='many': "),
    ((*WORKER, "replicas"), 5, "spec.tfReplicaSpecs.Worker.replicas=5: outside of "),
    ((*WORKER, "restartPolicy"), "Sometimes", "Worker.restartPolicy='Sometimes': "),
    ((*WORKER, "template"), GONE, "spec.tfReplicaSpecs.Worker.template is missing"),
    (("spec", "min-instances"), 0, "spec.min-instances=0: "),
    (("spec", "min-instances"), 3, "spec.tfReplicaSpecs.Worker.replicas=2: outside of spec.min-i"),
    (("spec", "min-instances"), 9, "spec.min-instances=9: more than spec.max-instances=4"),
    (("spec", "max-instances"), 1.5, "spec.max-instances=1.5: "),
    (ROLES, {"Chief": replicas()}, "spec.min-instances=1: the job has no "),
    (("spec", "cleanPodPolicy"), "Some", "spec.cleanPodPolicy='Some': "),
    (("spec", "backoffLimit"), -1, "spec.backoffLimit=-1: "),
    (("spec", "activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds=0: "),
    (("spec", "ttlSecondsAfterFinished"), "1h", "spec.ttlSecondsAfterFinished='1h': "),
    (("metadata", "name"), "1job", "metadata.name='1job': "),
    (("metadata", "name"), "my.job", "metadata.name='my.job': "),
    (("metadata", "name"), "j" * 60, f"metadata.name='{'j' * 60}': "),
    ((*POD, "containers"), [], "Worker.template.spec.containers=[]: "),
    ((*POD, "containers"), GONE, "Worker.template.spec.containers is missing"),
    (
        (*CONTAINER, "name"),
        "main",
        "spec.containers have the names ['main']: one has to be 'tensorfl",
    ),
    ((*CONTAINER, "ports"), [{"containerPort": 0}], "containers.0.ports.0.containerPort=0: "),
    (
        (*CONTAINER, "resources"),
        {"limits": {"cpu": "4x"}},
        "containers.0.resources.limits.cpu='4x'",
    ),
    ((*CONTAINER, "resources"), {"requests": {"cpu": -1}}, "0.resources.requests.cpu=-1: "),
    ((*POD, "nodeSelector"), ["gpu"], "template.spec.nodeSelector=['gpu']: "),
    ((*POD, "tolerations"), "all", "template.spec.tolerations='all': "),
    ((*POD, "affinity"), required(key="zone", operator="Is"), "operator='Is': "),
    ((*POD, "schedulingGates"), [{"name": "q"}], "spec.schedulingGates=[{'name': 'q'}]: "),
    (NOTES, share(request="1.5"), "metadata.annotations.kubeshare/gpu_request='1.5': "),
    (NOTES, share(limit="half"), "metadata.annotations.kubeshare/gpu_limit='half': "),
    (NOTES, share(mem="3G"), "metadata.annotations.kubeshare/gpu_mem='3G': "),
    (NOTES, share(mem=None), "metadata.annotations.kubeshare/gpu_mem is missing"),
    (NOTES, share(limit="0.2"), "kubeshare/gpu_request=0.5: more than kubeshare/gpu_limit=0.2"),
    (
        NOTES,
        {"annotations": share()["annotations"] | {"kubeshare/GPUID": "mine"}},
        "metadata.annotations.kubeshare/GPUID='mine': ",
    ),
]


def changed(path, value):
    job = copy.deepcopy(tf_job(workers=2, min_instances=1, max_instances=4))
    *way, last = path
    found = job
    for key in way:
        found = found.setdefault(key, {}) if isinstance(found, dict) else found[key]
    if value is GONE:
        del found[last]
    else:
        found[last] = value
    return job


@pytest.mark.parametrize(("path", "value", "words"), INVALID)
def test_an_invalid_job_fails_and_makes_nothing(path, value, words):
    world = World(changed(path, value), has_kubeshare=True).settle()
    assert words in world.message("Failed")
    assert world.condition("Failed") == "True"
    assert world.objects == {}
    [note] = world.notes
    assert (note.type, note.message) == ("Warning", world.message("Failed"))


def test_the_job_that_they_are_made_from_is_valid():
    job = tf_job(workers=2, min_instances=1, max_instances=4)
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"] |= {"metadata": {"annotations": None}}
    assert World(job).settle().condition("Failed") is None
