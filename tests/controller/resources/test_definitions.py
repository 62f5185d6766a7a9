"""The definitions of all kinds: structural, as committed, and with columns of fields that exist."""

import json
import re
from pathlib import Path

import pytest
import yaml
from support.statuses import failed, running, succeeded
from support.structural import breaches, refusals

import elastic
from elastic.controller.resources.definitions import DEFINITIONS, definitions, file_text, write
from elastic.errors import ElasticError
from elastic.spec.status import document

FOLDER = Path(elastic.__file__).parents[1] / "manifests" / "crds"
MAX_ANNOTATION_BYTES = 262_144
"""`kubectl apply` keeps the whole object in an annotation; all of an object may have so much."""

EACH = [pytest.param(each, id=each["spec"]["names"]["kind"]) for each in definitions()]
VERSIONS = [
    pytest.param(version, id=f"{each['spec']['names']['kind']}-{version['name']}")
    for each in definitions()
    for version in each["spec"]["versions"]
]


def _schema(version):
    return version["schema"]["openAPIV3Schema"]


def _at(schema, path):
    """The schema of the field at a JSONPath; None where no field is named so."""
    for part in re.findall(r"\.([-\w]+)|\[(-?\d+:?)\]", path):
        name, index = part
        if index:
            schema = schema.get("items")
        else:
            schema = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
        if schema is None:
            return None
    return schema


def _fields(schema, place):
    for name, within in schema.get("properties", {}).items():
        yield f"{place}.{name}", within
        yield from _fields(within, f"{place}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from _fields(schema[part], place)


@pytest.mark.parametrize("definition", EACH)
def test_committed_file_is_current(definition):
    path = FOLDER / f"{definition['spec']['names']['plural']}.yaml"
    assert path.read_text(encoding="utf-8") == file_text(definition), (
        "write it anew: python -m elastic.controller.resources.definitions manifests/crds"
    )
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == definition


def test_folder_holds_nothing_else(tmp_path):
    write(tmp_path / "crds")
    written = {path.name for path in (tmp_path / "crds").iterdir()}
    assert written == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("version", VERSIONS)
def test_schema_is_structural(version):
    assert breaches(_schema(version)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_fields_are_kept_wherever_fields_are_known(version):
    cut_off = [
        place
        for part in ("spec", "status")
        for place, within in [
            (part, _schema(version)["properties"][part]),
            *_fields(_schema(version)["properties"][part], part),
        ]
        if "properties" in within and not within.get("x-kubernetes-preserve-unknown-fields")
    ]
    assert cut_off == []


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_is_described(version):
    assert [
        place
        for part in ("spec", "status")
        for place, within in _fields(_schema(version)["properties"][part], part)
        if not within.get("description")
    ] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_and_scale_are_of_fields_that_exist(version):
    schema = _schema(version)
    schema = {**schema, "properties": {**schema["properties"], "metadata": {
        "properties": {"creationTimestamp": {"type": "string"}}}}}  # fmt: skip
    paths = [column["jsonPath"] for column in version["additionalPrinterColumns"]]
    paths += version["subresources"].get("scale", {}).values()
    assert [path for path in paths if _at(schema, path) is None] == []
    assert version["additionalPrinterColumns"][0]["name"] == "Phase"
    assert version["additionalPrinterColumns"][-1]["name"] == "Age"


@pytest.mark.parametrize("definition", EACH)
def test_names_and_versions_are_of_one_kind(definition):
    spec = definition["spec"]
    resource = DEFINITIONS[spec["names"]["kind"]].resource
    assert definition["metadata"]["name"] == f"{resource.plural}.{resource.group}"
    stored = [version["name"] for version in spec["versions"] if version["storage"]]
    assert stored == [resource.version]
    assert all(version["served"] for version in spec["versions"])
    assert len({json.dumps(_schema(version)) for version in spec["versions"]}) == 1


def test_no_two_kinds_have_one_name():
    names = [
        name
        for each in definitions()
        for name in (each["spec"]["names"]["singular"], *each["spec"]["names"]["shortNames"])
    ]
    assert len(names) == len(set(names))


def test_training_jobs_are_served_in_both_versions_of_their_documents():
    (definition,) = definitions(["TrainingJob"])
    assert [each["name"] for each in definition["spec"]["versions"]] == ["v1", "v1alpha1"]


@pytest.mark.parametrize("definition", EACH)
def test_kubectl_can_apply_it(definition):
    assert len(json.dumps(definition)) < MAX_ANNOTATION_BYTES


@pytest.mark.parametrize("definition", EACH)
def test_spec_tells_of_each_of_its_fields(definition):
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    lines = spec["description"].split("\n\n")[1:]
    assert [line.split(":")[0] for line in lines] == list(spec["properties"])


@pytest.mark.parametrize("status", [running(), failed(), succeeded()])
def test_what_status_prints_can_be_a_status(status):
    (definition,) = definitions(["ElasticTrainJob"])
    schema = _schema(definition["spec"]["versions"][0])["properties"]["status"]
    told = document(status)
    assert refusals(told, schema, "status") == []
    assert set(told) <= set(schema["properties"])
    assert refusals({**told, "phase": "Dreaming"}, schema, "status") != []


def test_kinds_can_be_left_out():
    chosen = definitions(["ElasticJob", "ElasticTrainJob"])
    assert [each["spec"]["names"]["kind"] for each in chosen] == ["ElasticJob", "ElasticTrainJob"]


def test_a_kind_that_is_none_is_named():
    with pytest.raises(ElasticError, match="there is no kind 'Job': use TrainingJob, ElasticJob"):
        definitions(["Job"])
