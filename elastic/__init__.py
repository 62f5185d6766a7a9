"""Deep-learning jobs that survive the loss of any process and resize while they run.

Importing this package loads no framework, no gRPC and no cluster client: `elastic --help` and a
user's model_def both import it. `train`, `Job` and the like are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elastic.spec.platforms import Mode

if TYPE_CHECKING:
    from elastic.api import Job, evaluate, jobs, predict, train

__all__ = ["Job", "Mode", "__version__", "evaluate", "jobs", "predict", "train"]

__version__ = "0.1.0"

_LAZY = frozenset({"Job", "evaluate", "jobs", "predict", "train"})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("elastic.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
