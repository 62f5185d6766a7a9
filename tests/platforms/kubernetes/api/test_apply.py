"""Objects applied on the side of a real API server: everybody's fields stay everybody's own."""

import pytest
from support.cluster import cluster, namespace, needs_cluster

from elastic.platforms.kubernetes.api.resources import CONFIGMAPS
from elastic.platforms.kubernetes.api.transport import RefusedError

__all__ = ["cluster", "namespace"]
pytestmark = needs_cluster


def test_fields_belong_to_who_applied_them(cluster, namespace):
    path = CONFIGMAPS.path(namespace, "shared")

    def apply(owner, force=False, **data):
        metadata = {"name": "shared", "namespace": namespace}
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
        return cluster.apply(path, manifest, owner, force)["data"]

    assert apply("ours", a="1", b="1") == {"a": "1", "b": "1"}
    assert apply("theirs", c="1") == {"a": "1", "b": "1", "c": "1"}
    assert apply("ours", a="2") == {"a": "2", "c": "1"}
    with pytest.raises(RefusedError) as refused:
        apply("theirs", a="3", c="1")
    assert (refused.value.code, refused.value.is_taken) == (409, False)
    assert apply("theirs", force=True, a="3", c="1") == {"a": "3", "c": "1"}
