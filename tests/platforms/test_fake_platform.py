"""The fake keeps the same contract as the real platforms."""

import pytest
from support.fake_platform import FakeReplicaRunner
from support.platform_contract import ReplicaRunnerContract

from elastic.platforms.base import ExitReason


class FakeHarness:
    def __init__(self):
        self.behaviours = {}
        self.runner = FakeReplicaRunner()
        self._launch = self.runner.launch
        self.runner.launch = self.launch

    def arrange(self, replica, behaviour):
        self.behaviours[replica] = behaviour
        if behaviour == "stubborn":
            self.runner.stubborn.add(replica)

    def settle(self, replica):
        pass

    def launch(self, replica):
        is_new = replica not in self.runner.launched
        self._launch(replica)
        match is_new and self.behaviours[replica]:
            case "succeed":
                self.runner.end(replica, ExitReason.COMPLETED)
            case "fail":
                self.runner.end(replica, ExitReason.USER_ERROR, "ValueError: bad record", 1)
            case "crash":
                self.runner.end(replica, ExitReason.USER_ERROR, "crashed with SIGSEGV", -11)
            case "unstartable":
                self.runner.end(replica, ExitReason.NEVER_STARTED, "no such program")

    def restart(self):
        self.runner.restart()

    def kill(self, replica):
        self.runner.end(replica, ExitReason.KILLED, exit_code=-9)

    def ask(self, num_workers=None, cancelled=False):
        self.runner.ask(num_workers, cancelled)

    def identity(self, replica):
        return replica.pid

    def expected_address(self, published):
        return published

    def published_address(self):
        return self.runner.addresses[-1]


class TestFakeReplicaRunner(ReplicaRunnerContract):
    @pytest.fixture
    def harness(self):
        return FakeHarness()
