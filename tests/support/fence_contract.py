"""What every `Fence` must do; the fake and each real one run this suite.

`FakeFence` is what tests of a master use that have no cluster.
"""

from typing import Protocol

import pytest

from elastic.platforms.base import Fence, FencedError
from support.cluster import eventually


class FakeFence:
    """Open until a test closes it."""

    def __init__(self):
        self.is_open = True

    def check(self):
        if not self.is_open:
            raise FencedError("a test has closed the fence")


class Harness(Protocol):
    """A fence whose master holds what it needs, and what its surroundings do to it."""

    fence: Fence

    def lose_contact(self) -> None:
        """Nobody can tell the master any more whether it is the only one."""

    def regain_contact(self) -> None:
        """Somebody can again; no other master has come meanwhile."""

    def replace(self) -> None:
        """Another master takes over."""


def passes(fence):
    """Whether the master may act at this moment."""
    try:
        fence.check()
    except FencedError:
        return False
    return True


class FenceContract:
    @pytest.fixture
    def harness(self):
        raise NotImplementedError

    def test_it_lets_the_only_master_act(self, harness):
        eventually(lambda: passes(harness.fence))

    def test_it_holds_a_master_back_as_long_as_nobody_can_tell(self, harness):
        harness.lose_contact()
        eventually(lambda: not passes(harness.fence))
        harness.regain_contact()
        eventually(lambda: passes(harness.fence))

    def test_it_holds_a_replaced_master_back_for_good(self, harness):
        harness.replace()
        eventually(lambda: not passes(harness.fence))
        harness.regain_contact()
        assert not any(passes(harness.fence) for _ in range(1000))
