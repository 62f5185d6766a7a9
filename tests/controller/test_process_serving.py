"""The controller's door, asked as a kubelet and Prometheus ask."""

import http.client
import queue
import socket
import struct
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from support.scraping import free_ports, scrape, value

import elastic
from elastic.controller.machinery.meter import Meter, Sample
from elastic.controller.run import METRICS, ControllerExporter, Door, metrics_table
from elastic.errors import JobSpecError
from elastic.telemetry.prometheus import Kind


@pytest.fixture
def open_door():
    doors = []

    def make(registry=None, is_alive=lambda: "", is_ready=lambda: "", port=None):
        door = Door(registry or CollectorRegistry(), is_alive, is_ready, "127.0.0.1")
        doors.append(door)
        port = port or free_ports()
        door.open(port)
        return port

    yield make
    for door in doors:
        door.close()


def ask(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/healthz", (503, "hangs\n")),
        ("/readyz", (200, "ok\n")),
        ("/readyz?verbose", (200, "ok\n")),
        ("/", (404, "there is /healthz, /readyz, /metrics\n")),
    ],
)
def test_each_probe_is_asked_at_its_path(open_door, path, expected):
    assert ask(open_door(is_alive=lambda: "hangs"), path) == expected


def test_a_probe_that_only_wants_the_head_gets_no_more(open_door):
    assert ask(open_door(is_ready=lambda: "not yet"), "/readyz", "HEAD") == (503, "")


def test_who_hangs_up_before_the_answer_leaves_no_traceback(open_door, capfd):
    asking, has_hung_up = queue.Queue(), threading.Event()

    def slow():
        asking.put(threading.current_thread())
        assert has_hung_up.wait(10)
        return ""

    port = open_door(is_alive=slow)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: door\r\n\r\n")
        answering = asking.get(timeout=10)
        # Closed with what is unsent thrown away: the other side is reset at once.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    has_hung_up.set()
    answering.join(10)
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_a_mistake_of_the_user(open_door):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"--port={port} cannot be listened at: Address already in use: choose another"
        with pytest.raises(JobSpecError, match=message):
            open_door(port=port)


def test_a_closed_door_is_closed_and_its_port_free():
    door, port = Door(CollectorRegistry(), lambda: "", lambda: "", "127.0.0.1"), free_ports()
    door.close()
    for _ in range(2):
        door.open(port)
        assert ask(port, "/healthz")[0] == 200
        door.close()
        with pytest.raises(ConnectionRefusedError):
            ask(port, "/healthz")


def exporter(sample=Sample, is_leading=lambda: False, kinds=("tfjob",)):
    return ControllerExporter(sample, is_leading, kinds)


def test_what_was_counted_is_told(open_door):
    meter, leads = Meter(), []
    port = open_door(
        exporter(lambda: meter.sample(3, ["tfjobs.kubeflow.org"]), lambda: bool(leads)).registry
    )
    for _ in range(2):
        meter.passed("tfjob")
    meter.failed("tfjob")
    meter.acted("create")
    samples = scrape(port)
    assert value(samples, "elastic_controller_passes_total", kind="tfjob") == 2
    assert value(samples, "elastic_controller_errors_total", kind="tfjob") == 1
    assert value(samples, "elastic_controller_actions_total", action="create") == 1
    assert value(samples, "elastic_controller_actions_total", action="delete") == 0
    assert value(samples, "elastic_controller_queue_depth") == 3
    assert value(samples, "elastic_controller_missing_types", resource="tfjobs.kubeflow.org") == 1
    assert value(samples, "elastic_controller_leader") == 0
    leads.append(True)
    assert value(scrape(port), "elastic_controller_leader") == 1


def test_times_fall_into_the_bucket_of_the_first_bound_that_holds_them(open_door):
    meter = Meter()
    port = open_door(exporter(lambda: meter.sample(0, [])).registry)
    for latency_s in (0.0005, 0.005, 0.3, 61.0):
        meter.answered(latency_s)
    samples = scrape(port)
    name = "elastic_controller_event_to_action_seconds"
    counts = {bound: value(samples, f"{name}_bucket", le=bound) for bound in LE}
    assert counts == {"0.001": 1, "0.0025": 1, "0.005": 2, "0.5": 3, "60.0": 3, "+Inf": 4}
    assert value(samples, f"{name}_count") == 4
    assert value(samples, f"{name}_sum") == pytest.approx(61.3055)


LE = ("0.001", "0.0025", "0.005", "0.5", "60.0", "+Inf")


def test_a_process_that_has_done_nothing_tells_zeros(open_door):
    samples = scrape(open_door(exporter().registry))
    assert value(samples, "elastic_controller_passes_total", kind="tfjob") == 0
    assert "elastic_controller_missing_types" not in samples


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions(metric):
    assert metric.name.startswith("elastic_controller_")
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.name.endswith("_seconds") == (metric.kind is Kind.HISTOGRAM)
    assert metric.help.endswith(".")


def test_the_page_on_controllers_has_all_metrics():
    page = Path(elastic.__file__).parents[1] / "docs" / "controllers.md"
    assert metrics_table() in page.read_text(), "write the table anew: elastic.controller.run"
