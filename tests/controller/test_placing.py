"""Quantities, what is free on nodes, and where pods go."""

from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tf_job_world import node

from elastic.controller.kinds.placing import GPU, Rooms, demand_of, needs_of, place, rooms_of
from elastic.spec.values import MOST, NANO, nanos_of, quantity_shown

SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "e3": Decimal(10**3),
    "E-2": Decimal("0.01"),
}


@given(st.decimals(0, 10**6, places=4), st.sampled_from(sorted(SCALES)))
def test_a_quantity_is_exact_and_rounded_up(number, suffix):
    exact = number * SCALES[suffix] * NANO
    assert nanos_of(f"{number:f}{suffix}") == exact.to_integral_value(ROUND_CEILING)


@pytest.mark.parametrize(
    ("written", "nanos"),
    [
        ("1E", 10**18 * NANO),
        ("1e999999999", MOST),
        ("9Ei", MOST),
        ("0.1n", 1),
        ("1e-999999999", 1),
        ("0e999999999", 0),
        (4, 4 * NANO),
        (0.5, NANO // 2),
        (".5", NANO // 2),
        ("5.", 5 * NANO),
        ("+1", NANO),
    ],
)
def test_quantities_at_their_bounds(written, nanos):
    assert nanos_of(written) == nanos


@pytest.mark.parametrize(
    "written",
    ["", ".", "-1", "1 ", "4x", "1kk", "1e", "0x1", "1_0", "٣", "m", True, None, [], "9" * 99],
)
def test_what_is_no_quantity(written):
    with pytest.raises(ValueError, match="expected a quantity"):
        nanos_of(written)


@pytest.mark.parametrize("text", ["8Gi", "1536Mi", "500m", "3", "0", "7n"])
def test_quantities_are_shown_as_people_write_them(text):
    assert quantity_shown(nanos_of(text)) == text


def container(cpu=None, limit=None, **more):
    resources = {}
    if cpu:
        resources["requests"] = {"cpu": cpu}
    if limit:
        resources["limits"] = {"cpu": limit}
    return {"name": "tensorflow", "resources": resources} | more


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        ({"containers": [container("1", "9"), container(limit="2")]}, "3"),
        ({"containers": [container("1")], "initContainers": [container("5")]}, "5"),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("2", restartPolicy="Always"), container("4")],
            },
            "6",
        ),
        (
            {
                "containers": [container("5")],
                "initContainers": [container("4"), container("2", restartPolicy="Always")],
            },
            "7",
        ),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, "1250m"),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "8"}}}, "8"),
    ],
)
def test_what_a_pod_needs(spec, cpu):
    assert needs_of(spec) == {"cpu": nanos_of(cpu), "pods": NANO}


def pod(where, cpu="1", phase="Running", labels=None, annotations=None, gpus=None):
    one = container(cpu)
    if gpus:
        one["resources"]["limits"] = {GPU: gpus}
    return {
        "metadata": {"name": "p", "uid": "p", "labels": labels, "annotations": annotations},
        "spec": {"nodeName": where, "containers": [one]},
        "status": {"phase": phase},
    }


def demand(name="w", cpu="1", annotations=None, **spec):
    metadata = {"annotations": annotations} if annotations else {}
    spec = {"containers": [container(cpu)]} | spec
    return demand_of(name, {"metadata": metadata, "spec": spec})


def share(request, mem="0"):
    return {
        "kubeshare/gpu_request": request,
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": mem,
    }


def at(placement):
    return {seat.pod: seat.node for seat in placement.seats}


def test_pods_count_until_they_are_over():
    leaving = pod("a", "1")
    leaving["metadata"]["deletionTimestamp"] = "now"
    pods = [pod("a", "2"), pod("a", "4", "Succeeded"), leaving, pod("", "5", "Pending")]
    [room] = rooms_of([node("a", cpu="8")], pods)
    assert room.free["cpu"] == 5 * NANO


TAINTED = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
SOFT = [{"key": "gpu", "effect": "PreferNoSchedule"}]


def affine(*requirements, fields=()):
    term = {"matchExpressions": list(requirements), "matchFields": list(fields)}
    kind = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {kind: {"nodeSelectorTerms": [term]}}}}


def asks(key, operator, *values):
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("node_spec", "rules", "reason"),
    [
        ({"unschedulable": True}, {}, "unschedulable"),
        ({"taints": TAINTED}, {}, "taint gpu:NoSchedule not tolerated"),
        ({"taints": SOFT}, {}, ""),
        ({"taints": TAINTED}, {"tolerations": [{"key": "gpu", "value": "yes"}]}, ""),
        ({"taints": TAINTED}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, ""),
        ({"taints": TAINTED}, {"tolerations": [{"operator": "Exists"}]}, ""),
        (
            {"taints": TAINTED},
            {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]},
            "taint gpu:NoSchedule not tolerated",
        ),
        ({}, {"nodeSelector": {"zone": "1"}}, ""),
        ({}, {"nodeSelector": {"zone": "2"}}, "not chosen by nodeSelector or affinity"),
        ({}, {"nodeName": "b"}, "not chosen by nodeSelector or affinity"),
        ({}, affine(asks("zone", "In", "1", "2")), ""),
        ({}, affine(asks("zone", "NotIn", "1")), "not chosen by nodeSelector or affinity"),
        ({}, affine(asks("disk", "NotIn", "1")), ""),
        ({}, affine(asks("disk", "Exists")), "not chosen by nodeSelector or affinity"),
        ({}, affine(asks("disk", "DoesNotExist")), ""),
        ({}, affine(asks("zone", "Gt", "0"), asks("zone", "Lt", "2")), ""),
        ({}, affine(asks("zone", "Gt", "1")), "not chosen by nodeSelector or affinity"),
        ({}, affine(asks("name", "Lt", "2")), "not chosen by nodeSelector or affinity"),
        ({}, affine(fields=[asks("metadata.name", "In", "a")]), ""),
        (
            {},
            affine(fields=[asks("metadata.name", "In", "b")]),
            "not chosen by nodeSelector or aff",
        ),
        ({}, affine(), "not chosen by nodeSelector or affinity"),
    ],
)
def test_which_nodes_a_pod_may_run_on(node_spec, rules, reason):
    one = node("a", labels={"zone": "1", "name": "x"})
    one["spec"] = node_spec
    [room] = rooms_of([one], [])
    why = room.why_not(demand(**rules))
    assert why.startswith(reason) if reason else why == ""


def test_a_node_that_is_not_ready_takes_nothing():
    one = node("a")
    one["status"]["conditions"][0]["status"] = "Unknown"
    [room] = rooms_of([one], [])
    assert room.why_not(demand()) == "not ready"


def test_a_node_runs_so_many_pods():
    [room] = rooms_of([node("a", pods="1")], [pod("a")])
    assert room.why_not(demand()) == "too little pods"


def test_what_a_node_never_had_is_too_little():
    one = demand(containers=[container(resources={"limits": {"example.com/fpga": 1}})])
    assert rooms_of([node("a")], [])[0].why_not(one) == "too little example.com/fpga"


def test_one_node_for_all_comes_before_the_first_that_fits():
    rooms = rooms_of([node("a", cpu="2"), node("b", cpu="3")], [])
    assert at(place([demand("ps"), demand("w0")], [demand("w1")], rooms)) == {
        "ps": "b",
        "w0": "b",
        "w1": "b",
    }


def test_more_workers_come_before_one_node():
    rooms = rooms_of([node("a", cpu="2"), node("b", cpu="2")], [])
    found = place([demand("ps"), demand("w0")], [demand("w1"), demand("w2"), demand("w3")], rooms)
    assert at(found) == {"ps": "a", "w0": "a", "w1": "b", "w2": "b"}
    assert found.missing == "w3 needs cpu=1; 2 nodes: 2 too little cpu"


def test_what_belongs_together_goes_together_or_not_at_all():
    rooms = rooms_of([node("a", cpu="2")], [])
    found = place([demand("ps"), demand("w0", cpu="2")], [demand("w1")], rooms)
    assert (found.seats, bool(found.missing)) == ((), True)


def test_nodes_of_the_rest_of_the_job_come_first():
    rooms = rooms_of([node("a"), node("b")], [])
    assert at(place([], [demand()], rooms, near={"b"})) == {"w": "b"}


@given(st.permutations(["a", "b", "c"]), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_the_order_of_nodes_means_nothing(order, sizes):
    nodes = {name: node(name, cpu=str(size)) for name, size in zip("abc", sizes, strict=True)}
    demands = [demand(f"w{i}", cpu="2") for i in range(4)]
    found = [
        place(demands[:1], demands[1:], rooms_of([nodes[name] for name in names], []))
        for names in (order, "abc")
    ]
    assert found[0] == found[1]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.lists(st.integers(1, 3), max_size=4),
    st.lists(st.integers(0, 6), min_size=1, max_size=4),
)
def test_nothing_is_given_out_twice(required, optional, sizes):
    nodes = [node(f"n{i}", cpu=str(size)) for i, size in enumerate(sizes)]
    needs = {f"d{i}": cpu for i, cpu in enumerate([*required, *optional])}
    demands = [demand(name, cpu=str(cpu)) for name, cpu in needs.items()]
    seats = at(place(demands[: len(required)], demands[len(required) :], rooms_of(nodes, [])))
    for i, size in enumerate(sizes):
        assert sum(needs[name] for name, where in seats.items() if where == f"n{i}") <= size
    assert not seats or {f"d{i}" for i in range(len(required))} <= seats.keys()


# Parts of GPUs.


def cards_of(placement):
    return [seat.card for seat in placement.seats]


def test_cards_in_use_are_filled_first():
    used = pod("a", annotations={"kubeshare/GPUID": "first"} | share("0.5"))
    rooms = rooms_of([node("a", gpus=2)], [used])
    demands = [demand(f"w{i}", annotations=share("0.5")) for i in range(4)]
    found = place([], demands, rooms)
    first, second, third = cards_of(found)
    assert first == "first" != second == third
    assert found.missing == "w3 needs cpu=1, 0.5 of a GPU; 1 nodes: 1 no GPU with so much left"


def test_whole_cards_are_not_parts():
    rooms = rooms_of([node("a", gpus=1)], [pod("a", gpus="1")])
    assert place([], [demand(annotations=share("0.1"))], rooms).seats == ()


def test_parts_are_not_whole_cards():
    used = pod("a", annotations={"kubeshare/GPUID": "first"} | share("0.1"))
    whole = demand(containers=[container(resources={"limits": {GPU: 1}})])
    assert place([], [whole], rooms_of([node("a", gpus=1)], [used])).seats == ()
    assert place([], [whole], rooms_of([node("a", gpus=2)], [used])).seats != ()


def test_the_pod_that_holds_a_card_for_kubeshare_counts_with_it_and_not_twice():
    used = pod("a", annotations={"kubeshare/GPUID": "first"} | share("0.5"))
    holder = pod("a", labels={"kubeshare/GPUID": "first"}, gpus="1")
    [room] = rooms_of([node("a", gpus=2)], [used, holder])
    assert room.free[GPU] == NANO
    assert [(card.id, card.request) for card in room.cards] == [("first", NANO // 2)]


def test_the_memory_of_a_card_counts_where_it_is_known():
    known = node("a", gpus=1, annotations={"kubeshare/gpu_info": "GPU-1:2,GPU-2:4,"})
    demands = [demand(f"w{i}", annotations=share("0.1", str(1 << 20))) for i in range(3)]
    assert len(place([], demands, rooms_of([known], [])).seats) == 2
    assert len(place([], demands, rooms_of([node("a", gpus=1)], [])).seats) == 3


def test_the_same_pod_asks_for_the_same_card_again():
    one = demand(annotations=share("0.5"))
    found = [place([], [one], rooms_of([node("a", gpus=1)], [])) for _ in range(2)]
    assert found[0] == found[1]
    [card] = cards_of(found[0])
    assert card.isalpha()


def test_somebodys_pod_with_broken_annotations_is_counted_nevertheless():
    broken = pod("a", cpu="3", annotations={"kubeshare/GPUID": "x"} | share("lots"))
    [room] = rooms_of([node("a", cpu="8", gpus=1)], [broken])
    assert (room.free["cpu"], room.free[GPU]) == (5 * NANO, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), max_size=12))
def test_rooms_that_are_remembered_are_those_that_there_are(changes):
    """A pod comes, is another by now, is over, or goes; a node is another."""
    remembered, nodes, pods = Rooms(), {name: node(name) for name in "abc"}, {}
    for name, number in changes:
        match number:
            case 0:
                nodes[name] = node(name, cpu="2")
            case 1:
                pods.pop(name, None)
            case 2:
                pods[name] = pod(name) | {"status": {"phase": "Failed"}}
            case _:
                pods[name] = pod(name, cpu=str(number))
        there = list(nodes.values()), list(pods.values())
        assert remembered.of(*there) == rooms_of(*there)


def test_nodes_about_which_nothing_has_changed_are_not_looked_at_again():
    rooms, nodes, one = Rooms(), [node("a"), node("b")], pod("a")
    before = rooms.of(nodes, [one])
    after = rooms.of(nodes, [one, pod("b")])
    assert after[0] is before[0]
    assert after[1] != before[1]
