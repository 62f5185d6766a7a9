"""The fake fence does what fences do."""

import pytest
from support.fence_contract import FakeFence, FenceContract

from elastic.platforms.base import NO_FENCE


class FakeHarness:
    def __init__(self):
        self.fence = FakeFence()
        self._is_replaced = False

    def lose_contact(self):
        self.fence.is_open = False

    def regain_contact(self):
        self.fence.is_open = not self._is_replaced

    def replace(self):
        self._is_replaced = True
        self.fence.is_open = False


class TestFake(FenceContract):
    @pytest.fixture
    def harness(self):
        return FakeHarness()


def test_a_master_that_nobody_makes_again_is_always_let_through():
    NO_FENCE.check()
