"""What is not installed with elastic itself, and is asked for when it is needed."""

import importlib.util
from dataclasses import dataclass

from elastic.errors import DataError
from elastic.spec.packages import pip_install


@dataclass(frozen=True, slots=True)
class Extra:
    """What a format needs that is not installed with elastic.

    Attributes:
        name: The extra of this package, as `pip_install` takes it.
        modules: What it installs, as imported.
    """

    name: str
    modules: tuple[str, ...]


def check_extra(extra: Extra, what: str) -> None:
    """Refuse to go on without the packages of an extra.

    Args:
        extra: What is needed.
        what: What is read with it, in the plural.

    Raises:
        DataError: One is not installed.
    """
    missing = [module for module in extra.modules if importlib.util.find_spec(module) is None]
    if missing:
        raise DataError(
            f"{what} are read with the package {missing[0]}, which is not installed here: "
            + how_to_get(extra)
        )


def how_to_get(extra: Extra) -> str:
    """What to do where an extra is missing, here and in a cluster."""
    return f"{pip_install(extra.name)}; in a cluster, the model_zoo's requirements.txt names it"
