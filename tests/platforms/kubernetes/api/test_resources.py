"""The paths that objects of any type are asked for by."""

import pytest

from elastic.platforms.kubernetes.api.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    NAMESPACES,
    PODS,
    Resource,
)

JOBS = Resource("elastic.dev", "v1", "elastictrainjobs", "ElasticTrainJob")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path("team"), "/api/v1/namespaces/team/pods"),
        (PODS.path("team", "a", "log"), "/api/v1/namespaces/team/pods/a/log"),
        (PODS.path(), "/api/v1/pods"),
        (NAMESPACES.path(name="team"), "/api/v1/namespaces/team"),
        (LEASES.path("team"), "/apis/coordination.k8s.io/v1/namespaces/team/leases"),
        (
            JOBS.path("team", "mnist", "status"),
            "/apis/elastic.dev/v1/namespaces/team/elastictrainjobs/mnist/status",
        ),
        (
            CUSTOM_RESOURCE_DEFINITIONS.path(name="elastictrainjobs.elastic.dev"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elastictrainjobs.elastic.dev",
        ),
    ],
)
def test_paths(path, expected):
    assert path == expected


def test_the_version_of_objects():
    assert (PODS.api_version, JOBS.api_version) == ("v1", "elastic.dev/v1")


def test_an_object_is_in_a_namespace_or_in_none():
    with pytest.raises(AssertionError, match="where is a"):
        PODS.path(name="a")
    with pytest.raises(AssertionError, match="are in no namespace"):
        NAMESPACES.path("team", "a")
