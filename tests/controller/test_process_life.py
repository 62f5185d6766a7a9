"""The life of controllers as processes of their own, before an API server in memory."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support import process_controller
from support.cluster import eventually
from support.process_api import JOBS, ProcessApi, definition
from support.scraping import free_ports, scrape, value

PROGRAM = process_controller.__file__
LEASE = "/apis/coordination.k8s.io/v1/namespaces/team/leases/elastic-controller"
CONFIGMAPS = "/api/v1/namespaces/team/configmaps"


@pytest.fixture
def api():
    with ProcessApi() as api:
        yield api


class Running:
    """One process of a controller."""

    def __init__(self, kubeconfig, name, log):
        self.name = name
        self.port = free_ports()
        self._log = log
        environment = {**os.environ, "PYTHONPATH": str(Path(PROGRAM).parents[1])}
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, PROGRAM, str(kubeconfig), str(self.port), name],
                env=environment, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def log(self):
        return self._log.read_text()

    def logs(self, text):
        return eventually(lambda: text in self.log() or self._fail_if_ended())

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://localhost:{self.port}{path}", timeout=10) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)

    def _fail_if_ended(self):
        assert self.process.poll() is None, self.log()


@pytest.fixture
def start(api, tmp_path):
    started = []

    def make(name, namespace="team"):
        kubeconfig = api.kubeconfig(tmp_path / f"{name}.yaml", namespace)
        started.append(Running(kubeconfig, name, tmp_path / f"{name}.log"))
        return started[-1]

    yield make
    for running in started:
        running.process.kill()
        running.process.wait()


def acts(api, name):
    """When a process acted, in seconds of this one's monotonic clock."""
    return [
        seen.time_s
        for seen in list(api.requests)
        if seen.path == CONFIGMAPS and seen.body["metadata"]["labels"]["who"] == name
    ]


class TestTwoProcesses:
    def test_the_standby_takes_over_from_a_killed_leader_and_they_never_act_together(
        self, api, start
    ):
        """Lasts as long as a lease."""
        leader = start("leader")
        leader.logs("leads: holds the lease team/elastic-controller")
        eventually(lambda: acts(api, "leader"))
        standby = start("standby")
        standby.logs("stands by")
        assert standby.ask("/readyz") == (200, "ok\n")
        eventually(lambda: value(scrape(leader.port), "elastic_controller_leader") == 1)
        assert value(scrape(standby.port), "elastic_controller_leader") == 0
        leader.process.kill()
        killed_s = time.monotonic()
        first_s = eventually(lambda: acts(api, "standby"))[0]
        assert first_s - killed_s <= 15.0
        assert max(acts(api, "leader")) < first_s
        assert api.objects[LEASE]["spec"]["leaseTransitions"] == 1

    def test_a_leader_that_is_asked_to_end_hands_over_at_once(self, api, start):
        leader = start("leader")
        leader.logs("leads")
        # It says that it leads before it looks at anything.
        eventually(lambda: acts(api, "leader"))
        standby = start("standby")
        standby.logs("stands by")
        asked_s = time.monotonic()
        assert leader.end() == signal.SIGTERM
        first_s = eventually(lambda: acts(api, "standby"))[0]
        assert first_s - asked_s < 5.0
        assert max(acts(api, "leader")) < first_s
        assert re.search("engine stopped.*ended as asked", leader.log(), re.DOTALL)
        assert "Traceback" not in leader.log()


class TestOneProcess:
    def test_one_that_gets_no_answer_ends_and_says_so(self, api, start):
        """Lasts as long as a lease."""
        leader = start("leader")
        leader.logs("leads")
        eventually(lambda: acts(api, "leader"))
        renewed_s = eventually(lambda: self._renewals(api))[-1]
        api.is_silent = True
        assert leader.process.wait(30) == 1
        # Well before the nine seconds after which another one may have it.
        assert time.monotonic() - renewed_s < 9.0
        message = (
            r"error: the lease team/elastic-controller is no longer held: .*does not answer.*"
            r"This process ends, lest two act at once; its Deployment starts it again\n"
        )
        assert re.search(message, leader.log(), re.DOTALL), leader.log()
        assert "Traceback" not in leader.log()

    def _renewals(self, api):
        return [each.time_s for each in api.requests if each.path == LEASE]

    def test_what_it_answers_to_probes_and_scrapes(self, api, start):
        leader = start("leader")
        leader.logs("leads")
        eventually(lambda: leader.ask("/readyz") == (200, "ok\n"))
        assert leader.ask("/healthz") == (200, "ok\n")
        samples = scrape(leader.port)
        assert value(samples, "elastic_controller_leader") == 1
        assert value(samples, "elastic_controller_passes_total", kind="TestJob") > 0
        assert value(samples, "elastic_controller_passes_total", kind="OtherJob") == 0

    def test_it_installs_the_types_that_are_not_there_and_leaves_the_others(self, api, start):
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        api.put(f"{path}/testjobs.test.elastic.dev", definition(JOBS, of="another"))
        leader = start("leader")
        eventually(lambda: acts(api, "leader"))
        assert "installed otherjobs.test.elastic.dev" in leader.log()
        there = api.objects[f"{path}/testjobs.test.elastic.dev"]
        assert there["metadata"]["labels"] == {"of": "another"}

    def test_without_the_right_to_install_it_says_once_who_has_to(self, api, start):
        api.forbidden = lambda seen: "customresourcedefinitions" in seen.path
        leader = start("leader")
        eventually(lambda: acts(api, "leader"))
        told = [line for line in leader.log().splitlines() if "not installed" in line]
        assert len(told) == 1
        assert "testjobs.test.elastic.dev, otherjobs.test.elastic.dev" in told[0]
        assert "`elastic install --controller -n team`" in told[0]

    def test_it_waits_for_an_api_server_that_is_away(self, api, start):
        api.is_silent = True
        leader = start("leader")
        leader.logs("cannot be asked for")
        assert leader.ask("/healthz") == (200, "ok\n")
        assert leader.ask("/readyz") == (503, "the API server does not answer\n")
        api.is_silent = False
        leader.logs("leads")

    def test_without_the_right_to_a_lease_it_ends_and_says_who_gives_it(self, api, start):
        api.forbidden = lambda seen: "leases" in seen.path
        nobody = start("nobody")
        assert nobody.process.wait(30) == 1
        assert re.search(
            "error: not permitted: .*`elastic install --controller -n team` gives", nobody.log()
        )

    def test_a_namespace_that_is_not_there(self, start):
        lost = start("lost", namespace="nowhere")
        assert lost.process.wait(30) == 1
        assert "error: there is no namespace 'nowhere' for the lease" in lost.log()

    def test_a_wish_while_it_stands_by_is_obeyed_at_once(self, start):
        start("leader").logs("leads")
        standby = start("standby")
        standby.logs("stands by")
        asked_s = time.monotonic()
        assert standby.end(signal.SIGINT) == signal.SIGINT
        assert time.monotonic() - asked_s < 5.0
