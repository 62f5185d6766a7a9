"""Parameters of a module that are not trained, and that therefore no step may change.

Every process has them from making the module: they are in no version and in no checkpoint. What a
step makes of them (a teacher that follows its student, say) would be of that process alone, and
lost with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import torch

from elastic.errors import ModelFaultError
from elastic.frameworks.base import some

LAST_LOOK: Final = 16
"""Steps 1, 2, 4, … up to this one are looked at: in the first a copy may follow what it equals."""

_BITS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By size. A sum of whole numbers loses nothing, and is the same in any order."""


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
            ModelFaultError: This one does, or one before did.
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
            changed = [name for name, was in before.items() if after.get(name) != was]
            self._changed = self._changed or changed
        if self._changed:
            raise ModelFaultError(
                f"a step changes {some(self._changed)}, which is not trained (requires_grad is "
                "False): each process would have values of its own, and no checkpoint has them: "
                "make it a buffer (register_buffer), which travels with the gradients and is kept"
            )

    def _sums(self) -> Mapping[str, int]:
        """The sum of each one's bits: copies of a large model would not fit."""
        # By name, as a step may put another parameter in the place of one.
        held = dict(self._module.named_parameters())
        return {
            name: int(held[name].detach().view(_BITS[held[name].itemsize]).sum(dtype=torch.int64))
            for name in self.names
            if name in held and _can_be_summed(held[name])
        }


def _can_be_summed(parameter: torch.nn.Parameter) -> bool:
    is_there = not torch.nn.parameter.is_lazy(parameter)
    return (
        is_there
        and parameter.layout is torch.strided
        and not parameter.is_quantized
        and parameter.itemsize in _BITS
    )
