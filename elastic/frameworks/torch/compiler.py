"""torch's compiler, imported when somebody uses it and not before.

The first optimizer that is made imports `torch._dynamo`, to tell it not to compile the optimizer's
bookkeeping. Of torch 2.13 that takes nearly as long as torch itself, and 70 MB, in a master and in
each parameter server, of which hardly any compiles.
"""

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any, Final

import torch

NAME: Final = "torch._dynamo"
DISABLED: Final = "__dynamo_disable"
"""Under this name torch keeps, of a function, what `disable` has made of it."""


class _Postponed(ModuleType):
    """Stands where the compiler would be, and answers what an optimizer asks of it.

    Whatever else is asked of it imports the compiler, which then takes its place.
    """

    def __init__(self, file: str | None) -> None:
        super().__init__(NAME)
        # Whoever goes over all modules looks at these of each.
        self.__file__ = file
        self._lock = threading.RLock()
        self._left_alone: list[Any] = []

    def graph_break(self, msg: str = "") -> None:
        """Nothing is compiled, so there is no graph to break."""

    def disable(self, fn: Any = None, *arguments: Any, **options: Any) -> Any:
        """Leave an optimizer's function as it is: who does not compile need not leave it out."""
        if str(getattr(fn, "__module__", "")).startswith("torch.optim."):
            self._left_alone.append(fn)
            return fn
        return self._compiler().disable(fn, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiler(), name)

    def _compiler(self) -> ModuleType:
        with self._lock:
            if sys.modules.get(NAME) is self:
                del sys.modules[NAME]
                for function in self._left_alone:
                    # torch asks again, and is answered by the compiler.
                    function.__dict__.pop(DISABLED, None)
            return importlib.import_module(NAME)


def postpone_compiler() -> None:
    """Have the compiler imported by its first use, unless it is there already."""
    if NAME in sys.modules:
        return
    spec = importlib.util.find_spec(NAME)
    if spec is None:
        return
    postponed = _Postponed(spec.origin)
    sys.modules[NAME] = postponed
    # As its import would have done.
    vars(torch)["_dynamo"] = postponed
