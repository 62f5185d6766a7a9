"""Parameters of a module that are not trained, and that therefore no step may change.

Every process has them from making the module: they are in no version and in no checkpoint. What a
step makes of them (a teacher that follows its student, say) would be of that process alone, and
lost with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import torch

from elastic.errors import ModelDefError
from elastic.frameworks.base import some

LAST_LOOK: Final = 16
"""Steps 1, 2, 4, … up to this one are looked at: in the first a copy may follow what it equals."""

_WHOLE: Final = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_REAL: Final = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SUMMED_AS: Final = dict.fromkeys(_WHOLE, torch.int64) | dict.fromkeys(_REAL, torch.float64)


class Untrained:
    """Those of one module.

    Attributes:
        names: As the module has them.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self.names = [n for n, p in module.named_parameters() if not p.requires_grad]
        self._num_steps = 0
        self._changed: Sequence[str] = ()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Look, around some of the first steps, whether one changes any.

        Raises:
            ModelDefError: This one does, or one before did.
        """
        if not self.names:
            yield
            return
        self._num_steps += 1
        number = self._num_steps
        is_looked_at = number <= LAST_LOOK and number & (number - 1) == 0
        before = self._sums() if is_looked_at else {}
        yield
        if is_looked_at:
            after = self._sums()
            changed = [name for name, was in before.items() if not _is_same(was, after.get(name))]
            self._changed = self._changed or changed
        if self._changed:
            raise ModelDefError(
                f"a step changes {some(self._changed)}, which is not trained (requires_grad is "
                "False): each process would have values of its own, and no checkpoint has them: "
                "make it a buffer (register_buffer), which travels with the gradients and is kept"
            )

    def _sums(self) -> Mapping[str, float]:
        """One number of each that can be added up: copies of a large model would not fit."""
        # By name, as a step may put another parameter in the place of one.
        held = dict(self._module.named_parameters())
        return {
            name: held[name].detach().sum(dtype=_SUMMED_AS[held[name].dtype]).item()
            for name in self.names
            if name in held and _can_be_summed(held[name])
        }


def _can_be_summed(parameter: torch.nn.Parameter) -> bool:
    is_there = not torch.nn.parameter.is_lazy(parameter)
    return is_there and parameter.dtype in _SUMMED_AS and parameter.layout is torch.strided


def _is_same(one: float, other: float | None) -> bool:
    # What is no number stays none.
    return one == other or (one != one and other != other)
