"""Servers of several roles announce themselves at one place."""

import asyncio

import pytest

from elastic.master.parameters.servers import ServerRing
from elastic.master.servicer import Reception
from elastic.policy.replicas import ReplicaId
from elastic.rpc import elastic_pb2 as pb
from elastic.rpc.wire import CallRefusedError
from elastic.spec.roles import PS, REDIS


def announce(role, index, launch=1):
    """The rings after one call, to a master of which every newest launch is 1."""

    async def call():
        rings = {PS: ServerRing(2), REDIS: ServerRing(1)}
        request = pb.RegisterServerRequest(
            server_index=index, launch=launch, address="127.0.0.1:1", life="life", role=role
        )
        await Reception(rings, lambda _: 1).register_server(request)
        return {name: [life.replica for life in ring.lives()] for name, ring in rings.items()}

    return asyncio.run(call())


def test_each_has_its_place_among_those_of_its_role():
    assert announce(REDIS, 0) == {PS: [], REDIS: [ReplicaId(REDIS, 0, 1)]}
    assert announce(PS, 1) == {PS: [ReplicaId(PS, 1, 1)], REDIS: []}


def test_one_that_names_no_role_is_a_parameter_server():
    assert announce("", 0) == {PS: [ReplicaId(PS, 0, 1)], REDIS: []}


@pytest.mark.parametrize(("role", "index"), [(REDIS, 1), ("worker", 0), (PS, 2), (PS, -1)])
def test_one_without_a_place_is_refused(role, index):
    with pytest.raises(CallRefusedError, match="has no server"):
        announce(role, index)


def test_one_that_was_replaced_is_refused():
    with pytest.raises(CallRefusedError, match="was replaced by 1"):
        announce(REDIS, 0, launch=0)
