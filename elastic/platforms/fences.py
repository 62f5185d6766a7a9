"""Whether a master may still act for its job, where somebody may make another one beside it.

A master that is cut off from everybody may live on when the next one is made. Whatever others see
of a master, such as a cut, an answer or a pod, passes its fence first, so that of two masters one
at the most is heard.
"""

from typing import Final, Protocol

from elastic.errors import PlatformError


class FencedError(PlatformError):
    """Another master may act for the job in this moment, so this one must not."""


class Fence(Protocol):
    """Asked right before each step that others see. Thread-safe, and costs next to nothing."""

    def check(self) -> None:
        """Return where no other master can act in this moment.

        Raises:
            FencedError: One can, or nobody knows. Where nobody knows it may be otherwise later.
        """


class NoFence:
    """Of a job that has one master at a time by other means: by the name of its only pod."""

    def check(self) -> None:
        """There is no other master."""


NO_FENCE: Final[Fence] = NoFence()
