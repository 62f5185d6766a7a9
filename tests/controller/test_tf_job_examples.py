"""The TFJobs of `manifests/examples`: each can be applied as it is, and is what it says."""

import ast
import json

import pytest
from support.tf_job_world import EXAMPLES, World, example, node

NAMES = sorted(path.name for path in EXAMPLES.glob("tfjob-*.yaml"))


def test_the_examples_are_there():
    assert NAMES == [
        "tfjob-between-graphs.yaml",
        "tfjob-chief.yaml",
        "tfjob-cpu.yaml",
        "tfjob-gpu.yaml",
        "tfjob-kubeshare.yaml",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_starts_without_a_warning(name):
    world = World(
        example(name), node("a", cpu="64", memory="256Gi", gpus=4), has_kubeshare=True
    ).settle()
    assert world.condition("Scheduled") == "True"
    assert [note for note in world.notes if note.type == "Warning"] == []


@pytest.mark.parametrize("name", ["tfjob-between-graphs.yaml", "tfjob-chief.yaml"])
def test_the_program_of_an_example_is_python_and_the_same_for_all(name):
    specs = example(name)["spec"]["tfReplicaSpecs"].values()
    programs = {s["template"]["spec"]["containers"][0]["args"][0] for s in specs}
    [program] = programs
    ast.parse(program)


def test_the_chiefs_example_has_its_roles():
    world = World(example("tfjob-chief.yaml")).settle()
    config = json.loads(world.env("chief-worker-1")["TF_CONFIG"])
    assert list(config["cluster"]) == ["chief", "ps", "worker"]
    assert config["cluster"]["chief"] == ["chief-chief-0.default.svc:2222"]
