"""The shipped controller: its parts fit, and the files that install it are current."""

from pathlib import Path

import pytest

import elastic
from elastic.controller.assembly import assembled
from elastic.controller.installing import job_rules
from elastic.controller.machinery.registration import definition_of
from elastic.controller.manifests import texts

ROOT = Path(elastic.__file__).parents[1]


@pytest.mark.parametrize("name", ["controller.yaml", "controller-cluster.yaml"])
def test_the_manifests_are_what_install_prints(name):
    assert (ROOT / "manifests" / name).read_text() == texts()[name], (
        "write them anew: python -m elastic.controller.manifests manifests"
    )


def test_every_kind_has_its_definition_and_its_row_in_the_docs():
    parts = assembled()
    page = (ROOT / "docs" / "controllers.md").read_text()
    for name, kind in parts.kinds(parts.names()).items():
        definition = definition_of(kind.resource, parts.definitions())
        served = {version["name"] for version in definition["spec"]["versions"]}
        assert kind.resource.version in served
        assert f"| `{name}` | {kind.resource.kind} | `{kind.resource.api_version}`" in page


def test_secrets_can_be_made_and_none_can_be_found():
    parts = assembled()
    kinds = parts.kinds(parts.names()).values()
    verbs = [rule["verbs"] for rule in job_rules(kinds) if "secrets" in rule["resources"]]
    assert verbs == [["get", "create"]]


def test_what_a_cluster_does_not_know_is_not_watched():
    parts = assembled()
    groups = {
        child.group
        for kind in parts.kinds(parts.names(), lambda _: False).values()
        for child in kind.children
    }
    assert groups <= {"", "apps", "batch"}
