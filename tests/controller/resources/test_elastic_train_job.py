"""ElasticTrainJob: job files are taken as they are, and what the resource says by itself holds."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.structural import refusals

import elastic
from elastic.controller.resources.common import ConditionStatus, read_spec, with_condition
from elastic.controller.resources.definitions import definitions
from elastic.controller.resources.elastic_train_job import (
    ElasticTrainJobSpec,
    ElasticTrainJobStatus,
)
from elastic.errors import JobSpecError
from elastic.spec import job as describe
from elastic.spec.job import JobSpec, read_job_file, write_job_file
from elastic.spec.platforms import JobKind
from elastic.spec.settings.cluster import state_volume
from elastic.spec.yaml_text import load_value

EXAMPLES = Path(elastic.__file__).parents[1] / "manifests" / "examples"
# The others are resources.
JOB_FILES = [
    path
    for path in sorted(EXAMPLES.glob("*.yaml"))
    if "\napiVersion:" not in f"\n{path.read_text()}"
]
JOB = {"model_def": "digits.torch.Model", "training_data_dir": "/data", "minibatch_size": 32}
SCHEMA = definitions(["ElasticTrainJob"])[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def _read(**spec):
    return read_spec(ElasticTrainJobSpec, {"spec": {"image": "digits:1", "job": JOB} | spec})


def _spec(**spec) -> ElasticTrainJobSpec:
    reading = _read(**spec)
    assert reading.spec is not None, reading.problem
    return reading.spec


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.stem)
def test_job_file_is_taken_as_it_is(path):
    content = read_job_file(path)
    assert refusals(content, SCHEMA["properties"]["spec"]["properties"]["job"]) == []
    assert _read(job=content, image=content.get("image", "a:1")).problem == ""


@pytest.mark.parametrize("kind", JobKind)
def test_what_a_dry_run_prints_is_taken_and_says_the_same_job(kind):
    spec = JobSpec(
        kind=kind, model_zoo="/model_zoo", model_def="a.b.C", minibatch_size=8, num_workers="2:8",
        envs={"A": "1"}, env_secret="one,two", worker_pod_priority=0.5, namespace="team",
        job_name="digits", image="a:1", **{kind.data_setting: "/data"},
        **({} if kind is JobKind.TRAIN else {"model": "/exported"}),
    )  # fmt: skip
    printed = load_value(write_job_file(spec))
    assert refusals(printed, SCHEMA["properties"]["spec"]["properties"]["job"]) == []
    assert _spec(job=printed, image="").job_spec("digits", "team") == spec


def test_every_setting_is_explained():
    fields = SCHEMA["properties"]["spec"]["properties"]["job"]["properties"]
    assert list(fields) == [setting.name for setting in describe.settings()]
    for setting in describe.settings():
        assert setting.help in fields[setting.name]["description"]
    assert fields["minibatch_size"]["minimum"] == 1
    assert fields["start_timeout"]["exclusiveMinimum"] is True


def test_resource_names_the_job_and_its_image():
    spec = _spec(image="digits:2").job_spec("night", "team")
    assert (spec.job_name, spec.namespace, spec.image) == ("night", "team", "digits:2")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"job_name": "day"}, "spec.job.job_name is 'day', and the resource has 'night'"),
        ({"namespace": "other"}, "spec.job.namespace is 'other', and the resource has 'team'"),
    ],
)
def test_job_that_names_itself_otherwise_is_refused(change, told):
    with pytest.raises(JobSpecError, match=told):
        _spec(job=JOB | change).job_spec("night", "team")


@pytest.mark.parametrize("name", ["a.b", "0day", "n" * 41])
def test_name_that_no_job_can_have_is_told_as_that_of_the_resource(name):
    with pytest.raises(JobSpecError, match=r"^metadata\.name: "):
        _spec().job_spec(name, "team")


@pytest.mark.parametrize(
    ("spec", "claim"),
    [
        ({}, None),
        ({"state": {"claimName": "mine"}}, "mine"),
        ({"state": {"volumeClaimTemplate": {"spec": {}}}}, "elastic-night-state"),
        ({"job": JOB | {"volume": "claim_name=own,mount_path=/elastic/state"}}, "own"),
        ({"job": JOB | {"volume": "claim_name=data,mount_path=/data"}}, None),
    ],
)
def test_state_is_a_volume_of_the_job(spec, claim):
    read = _spec(**spec)
    volume = state_volume(read.job_spec("night", "team").volume)
    assert read.claim_name("night") == claim
    assert (volume.claim_name if volume is not None else None) == claim


def test_other_volumes_of_the_job_stay_beside_that_of_the_state():
    job = JOB | {"volume": "claim_name=data,mount_path=/data"}
    spec = _spec(job=job, state={"claimName": "mine"}).job_spec("night", "team")
    assert (
        spec.volume == "claim_name=data,mount_path=/data;claim_name=mine,mount_path=/elastic/state"
    )


def test_unknown_fields_are_kept_and_told():
    state = {"claimName": "a", "size": 1}
    reading = _read(job=JOB | {"no_such": 1}, state=state, colour="red")
    assert set(reading.unknown) == {"spec.job.no_such", "spec.colour", "spec.state.size"}
    assert reading.spec is not None
    assert reading.spec.model_extra == {"colour": "red"}


def test_keys_have_the_other_names_of_settings_too():
    job = {"model-def": "a.b.C", "training_data": "/data", "minibatch-size": 8, "workers": 3}
    spec = _spec(job=job).job_spec("night", "team")
    assert (spec.minibatch_size, spec.num_workers.maximum) == (8, 3)


def test_status_is_written_with_the_names_of_both():
    running = with_condition((), "Running", ConditionStatus.TRUE, "JobRunning", "", 0.0)
    status = ElasticTrainJobStatus(
        job_name="night", master_pod="elastic-night-master", conditions=running
    )
    written = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert written["master_pod"] == "elastic-night-master"
    assert written["conditions"][0]["lastUpdateTime"] == "1970-01-01T00:00:00Z"
    assert refusals(written, SCHEMA["properties"]["status"], "status") == []
    assert ElasticTrainJobStatus.model_validate(written | {"newer": 1}) is not None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)
KEYS = st.sampled_from([setting.name for setting in describe.settings()])
FIELDS = st.sampled_from(["image", "state", "ttlSecondsAfterFinished", "suspend", "queue", "x"])


@settings(max_examples=100, deadline=None)
@given(job=st.dictionaries(KEYS, ANYTHING, max_size=4), rest=st.dictionaries(FIELDS, ANYTHING))
def test_nothing_that_is_written_stops_the_reader(job, rest):
    reading = read_spec(ElasticTrainJobSpec, {"spec": {"image": "a:1"} | rest | {"job": JOB | job}})
    assert (reading.spec is None) == bool(reading.problem)
    assert not reading.problem or reading.problem.startswith("spec")
    if reading.spec is not None:
        _name_it(reading.spec)


def _name_it(spec: ElasticTrainJobSpec) -> None:
    with suppress(JobSpecError):
        assert spec.job_spec("night", "team").job_name == "night"
