"""What `elastic train --dry_run -o crd` prints is the job that `elastic train` itself submits."""

import json
from pathlib import Path

import pytest
from support.api_objects import Place
from support.api_server_in_memory import NAMESPACE, InMemoryApi
from support.structural import refusals
from support.train_job_world import UID, World

import elastic
from elastic.cli.main import main
from elastic.controller.resources.common import read_spec
from elastic.controller.resources.definitions import definitions
from elastic.controller.resources.elastic_train_job import ElasticTrainJobSpec
from elastic.platforms.kubernetes.api.resources import (
    CONFIGMAPS,
    PODS,
    SECRETS,
    SERVICES,
)
from elastic.platforms.kubernetes.api.resources import (
    PERSISTENT_VOLUME_CLAIMS as CLAIMS,
)
from elastic.platforms.kubernetes.job.platform import KubernetesPlatform
from elastic.platforms.kubernetes.objects.manifests import spec_for_pods
from elastic.platforms.kubernetes.objects.names import SUBMISSION_LABEL, TRAIN_JOB_LABEL
from elastic.platforms.kubernetes.objects.podspec import bearing_with_lost_node
from elastic.spec.job import JobSpec, read_job_file
from elastic.spec.yaml_text import load_value

SCHEMA = definitions(["ElasticTrainJob"])[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
EXAMPLES = Path(elastic.__file__).parents[1] / "manifests" / "examples"
COMMON = [
    "--platform=kubernetes", "--job_name=night", "--image=digits:1", "--model_zoo=model_zoo",
    "--model_def=digits.digits_torch.CustomModel", "--minibatch_size=32",
]  # fmt: skip
TRAIN = ["train", *COMMON, "--training_data_dir=/data/digits"]
COMMANDS = {
    "least": TRAIN,
    "all of it": [
        *TRAIN, "-n", NAMESPACE, "--num_workers=1:4", "--num_epochs=3",
        "--volume=claim_name=a,mount_path=/a;claim_name=night,mount_path=/elastic/state",
        "--tensorboard_log_dir=/a/curves", "--envs=A=1,B=yes", "--env_secret=login",
        "--tolerations=gpu:NoSchedule", "--node_selector=zone=a", "--image_pull_secrets=pull",
        "--master_pod_priority=high", "--worker_pod_priority=0.5", "--seed=7", "--shuffle=none",
        "--worker_resource_request=cpu=2,memory=1Gi,gpu=1", "--master_port=6000",
        "--image_pull_policy=IfNotPresent", "--checkpoint_dir=/a/checkpoints",
    ],
    "curves beside the master": [*TRAIN, "--tensorboard_log_dir=/tmp/curves"],
    "evaluate": ["evaluate", *COMMON, "--evaluation_data_dir=/data", "--model=/a/model"],
    "predict": [
        "predict", *COMMON, "--prediction_data_dir=/data", "--model=/a/model",
        "--volume=claim_name=a,mount_path=/a", "--prediction_outputs=/a/out",
    ],
}  # fmt: skip


@pytest.fixture(params=COMMANDS)
def command(request):
    return COMMANDS[request.param]


@pytest.fixture
def printed(capsys, command):
    assert main([*command, "--dry_run", "-o", "crd"]) == 0
    return load_value(capsys.readouterr().out)


@pytest.fixture
def spec(capsys, command):
    """The job that the command line stands for."""
    assert main([*command, "--dry_run"]) == 0
    return JobSpec(**load_value(capsys.readouterr().out))


def test_it_passes_the_schema_and_is_read_as_the_same_job(printed, spec):
    assert refusals(printed, SCHEMA) == []
    namespace = printed["metadata"].get("namespace", NAMESPACE)
    assert printed["metadata"] == {"name": "night"} | (
        {"namespace": NAMESPACE} if spec.namespace else {}
    )
    reading = read_spec(ElasticTrainJobSpec, printed)
    assert (reading.problem, reading.unknown) == ("", ())
    # Whether it encrypts is resolved when it is submitted.
    kept = {"namespace": namespace, "tls": spec.tls}
    expected = spec_for_pods(spec, None).model_copy(update=kept)
    assert reading.spec.job_spec("night", namespace) == expected


def test_the_same_objects_are_made_of_it(printed, spec):
    by_controller = made_by_controller(printed)
    by_command_line = made_by_command_line(spec)
    assert by_controller.keys() == by_command_line.keys()
    for key, item in by_controller.items():
        assert item == by_command_line[key], key


def made_by_controller(printed):
    world = World(printed).settle()
    # Its volume is where the master is.
    world.run()
    for item in world.objects[PODS].values():
        item["spec"].pop("nodeName", None)
    found = {
        (of.kind, name): comparable(item, UID.replace("-", ""))
        for of, items in world.objects.items()
        for name, item in items.items()
    }
    master = found["Pod", "elastic-night-master"]["spec"]
    added = bearing_with_lost_node()
    assert master["tolerations"][-len(added) :] == added, "it is made again elsewhere"
    del master["tolerations"][-len(added) :]
    # A plain job's is made by its master.
    assert not found.pop(("ConfigMap", "elastic-night-status"))["data"]
    return found


def made_by_command_line(spec):
    with InMemoryApi() as api:
        for of, name in ((CLAIMS, "a"), (CLAIMS, "night"), (SECRETS, "login")):
            place = Place("", "v1", of.plural, NAMESPACE, name)
            api.objects.create(place, {"apiVersion": "v1", "metadata": {"name": name}})
        KubernetesPlatform(api.cluster(), NAMESPACE).submit(spec)
        found = {}
        for of in (PODS, SERVICES, CONFIGMAPS, SECRETS, CLAIMS):
            items, _ = api.objects.list(Place("", "v1", of.plural, NAMESPACE))
            found |= {(of.kind, item["metadata"]["name"]): item for item in items}
    ours = {key: item for key, item in found.items() if key[1].startswith("elastic-")}
    return {
        key: comparable(item, item["metadata"]["labels"][SUBMISSION_LABEL])
        for key, item in ours.items()
    }


def comparable(item, uid):
    """What of an object is the same whoever makes it."""
    labels = dict(item["metadata"]["labels"])
    labels.pop(TRAIN_JOB_LABEL, None)
    metadata = {"labels": labels, "annotations": item["metadata"].get("annotations")}
    data = dict(item.get("data") or {})
    data.pop("submission.json", None)
    rest = {key: item.get(key) for key in ("apiVersion", "kind", "spec", "type")}
    tokens = sorted(item.get("stringData") or ())
    whole = {**rest, "metadata": metadata, "data": data, "tokens": tokens}
    return json.loads(json.dumps(whole).replace(uid, "UID"))


class TestRefused:
    """What a resource cannot say is told, with the flag that helps."""

    @pytest.mark.parametrize(
        ("flags", "told"),
        [
            (["--image="], "needs --image"),
            (["--platform=local"], "add --platform kubernetes"),
            (["--cluster_spec=hook.py"], "names a file of the machine that submits"),
        ],
    )
    def test_with_the_reason(self, run_in, flags, told):
        code, out, err = run_in([*TRAIN, *flags, "--dry_run", "-o", "crd"])
        assert (code, out) == (2, "")
        assert told in err

    def test_without_dry_run_nothing_is_printed(self, run_in):
        code, _, err = run_in([*TRAIN, "-o", "crd"])
        assert code == 2
        assert "-o crd says what --dry_run prints" in err

    def test_what_a_lost_master_costs_is_said(self, run_in):
        _, _, err = run_in([*TRAIN, "--dry_run", "-o", "crd"])
        assert "without a --volume at /elastic/state the job begins again" in err
        kept = "--volume=claim_name=a,mount_path=/elastic/state"
        _, _, err = run_in([*TRAIN, kept, "--dry_run", "-o", "crd"])
        assert err == ""


@pytest.fixture
def run_in(capsys):
    def call(argv):
        code = main(argv)
        captured = capsys.readouterr()
        return int(code), captured.out, captured.err

    return call


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("elastictrainjob*.yaml")), ids=lambda p: p.stem
)
def test_an_example_can_be_applied_and_begins_without_a_warning(path):
    example = load_value(path.read_text())
    assert refusals(example, SCHEMA) == []
    world = World(example).settle()
    assert world.phase == "Pending"
    assert [note for note in world.notes if note.type == "Warning"] == []


def test_the_example_trains_as_that_of_the_command_line():
    example = load_value((EXAMPLES / "elastictrainjob.yaml").read_text())["spec"]["job"]
    by_command_line = read_job_file(EXAMPLES / "digits.yaml")
    both = example.keys() & by_command_line.keys()
    assert both >= {"model_def", "training_data_dir", "minibatch_size", "num_workers"}
    assert {key: example[key] for key in both} == {key: by_command_line[key] for key in both}
