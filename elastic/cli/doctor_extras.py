"""The optional extras of elastic: which are there, and what each is for."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Final

from elastic.platforms.registry import Check, Outcome
from elastic.spec.packages import (
    DISTRIBUTION,
    FORMER_DISTRIBUTION,
    PACKAGES,
    install_this,
    pip_install,
)

_USES: Final = {
    "tensorboard": "training curves in TensorBoard (--tensorboard_log_dir)",
    "parquet": "Parquet files as training data",
    "images": "folders of images as training data",
    "remote": "data at s3://, gs:// and https:// addresses",
    "zstd": "files that are compressed with zstd",
}
"""By extra. One that is new here is told by the packages that it brings."""
_OTHERS: Final = frozenset({"dev", "torch", "tensorflow"})
"""Extras that are no features: the developers' tools, and the frameworks, which are a check of
their own."""
_REQUIREMENT: Final = re.compile(
    r"(?P<package>[\w.-]+).*;.*\bextra\s*==\s*['\"](?P<extra>[\w.-]+)['\"]"
)


def check_distribution() -> Check:
    """Whether the module `elastic` is of one distribution: ours."""
    providers = metadata.packages_distributions().get("elastic", [])
    return distribution_check({*providers, FORMER_DISTRIBUTION}, version_of)


def distribution_check(names: Collection[str], version: Callable[[str], str | None]) -> Check:
    """What it means that these are, or may be, installed.

    Args:
        version: The installed version of a distribution, or None.
    """
    own = version(DISTRIBUTION)
    others = {name: version(name) for name in sorted(names) if _plain(name) != DISTRIBUTION}
    found = {name: number for name, number in others.items() if number}
    if found:
        text = ", ".join(f"{name} {number}" for name, number in found.items())
        fix = f"pip uninstall {' '.join(found)}, then install this one from its wheel or checkout"
        return Check(
            "distribution", Outcome.WARNING, f"{text} is installed too, with files of one name", fix
        )
    if own is None:
        text = f"elastic runs without being installed as {DISTRIBUTION}"
        return Check("distribution", Outcome.SKIPPED, text, install_this())
    return Check("distribution", Outcome.OK, f"{DISTRIBUTION} {own}")


def _plain(name: str) -> str:
    """The one way to write a distribution's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_extras() -> Iterator[Check]:
    """Each optional extra of the elastic that runs."""
    try:
        requirements = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        text = "elastic runs without being installed, so nobody knows them"
        yield Check("extras", Outcome.SKIPPED, text, install_this())
        return
    yield from checks_of(extras_in(requirements), version_of)


def extras_in(requirements: Sequence[str]) -> dict[str, list[str]]:
    """Optional extra → the packages it brings, as the metadata of a distribution lists them."""
    found: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, requirements)):
        if match["extra"] not in _OTHERS:
            found.setdefault(match["extra"], []).append(match["package"])
    return found


def checks_of(
    extras: Mapping[str, Sequence[str]], version: Callable[[str], str | None]
) -> Iterator[Check]:
    """One check an extra; what is not installed stops no job that does not ask for it.

    Args:
        version: The installed version of a package, or None.
    """
    for extra, packages in sorted(extras.items()):
        subject = f"extra {extra}"
        versions = {package: version(package) for package in packages}
        use = _USES.get(extra, f"what needs {', '.join(packages)}")
        if all(versions.values()):
            have = ", ".join(f"{package} {number}" for package, number in versions.items())
            yield Check(subject, Outcome.OK, f"{use} ({have})")
        else:
            missing = [package for package, number in versions.items() if not number]
            text = f"{use}: not installed: {', '.join(missing)}"
            fix = pip_install(extra) if extra in PACKAGES else f"pip install {' '.join(missing)}"
            yield Check(subject, Outcome.SKIPPED, text, fix)


def version_of(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
