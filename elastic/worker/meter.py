"""What a worker measures of its steps: nothing, until somebody wants to know."""

from typing import Protocol


class StepMeter(Protocol):
    """Told as it happens, on the thread that computes."""

    def computed(self, step_s: float) -> None:
        """A minibatch's gradient was computed."""

    def pulled(self, pull_s: float) -> None:
        """The model was asked for and has come, or is here already."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """A gradient was sent and answered."""

    def received(self, size_bytes: int) -> None:
        """A version of the model has come."""


class NoMeter:
    """Measures nothing."""

    def computed(self, step_s: float) -> None:
        """Ignored."""

    def pulled(self, pull_s: float) -> None:
        """Ignored."""

    def pushed(self, push_s: float, size_bytes: int) -> None:
        """Ignored."""

    def received(self, size_bytes: int) -> None:
        """Ignored."""
