"""Platforms by their names: what each offers to the command line, and to programs of replicas.

A platform's package has a module `entry` with its `ENTRY`. It is imported when it is asked for, and
imports the rest of its package within its methods, so that nobody pays for what he does not use.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from elastic.platforms.base import Platform
from elastic.platforms.surroundings import MasterEnvironment, Surroundings
from elastic.policy.replicas import ReplicaId
from elastic.spec.platforms import PLATFORMS, PlatformName, Traits

if TYPE_CHECKING:
    from elastic.platforms.images import ImageRequest

PATIENCE_S: Final = 4.0
"""How long people wait for an API server that is away or busy; followers wait longer."""

MakeImage: TypeAlias = "Callable[[ImageRequest], str]"
"""Makes the image of a job where the platform has images, and returns its name."""


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """Which cluster is meant, by kubectl's conventions; None leaves it to the kubeconfig."""

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None


class Outcome(StrEnum):
    """What a check came to; only a failure stops jobs."""

    OK = "ok"
    WARNING = "warn"
    FAILURE = "fail"
    SKIPPED = "skip"


@dataclass(frozen=True, slots=True)
class Check:
    """The outcome of one check.

    Attributes:
        subject: What was looked at, in a word or two.
        fix: What to do; a failure always has it.
    """

    subject: str
    outcome: Outcome
    text: str
    fix: str = ""

    def __post_init__(self) -> None:
        assert self.fix or self.outcome is not Outcome.FAILURE, f"{self.subject} has no fix"


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What `elastic doctor` is asked to look at.

    Attributes:
        service_account: Of the masters.
        docker_base_url: Of the engine that makes images.
        repository: Where images are pushed to; empty where none is named.
    """

    choice: ClusterChoice
    service_account: str
    docker_base_url: str
    repository: str


class PlatformEntry(Protocol):
    """What the package of a platform offers."""

    def is_meant(self, choice: ClusterChoice) -> bool:
        """Whether jobs go there where nobody names a platform; asks no network."""

    def open(self, choice: ClusterChoice, patience_s: float, make_image: MakeImage) -> Platform:
        """The command line's side.

        Args:
            patience_s: How long an API server that does not answer is asked again.

        Raises:
            PlatformError: The platform cannot be used from here.
        """

    def checks(self, request: CheckRequest) -> Iterator[Check]:
        """Look at everything that its jobs need, one by one."""

    def surroundings(self, place: str, replica: ReplicaId | None) -> Surroundings:
        """What the program of a replica is given.

        Args:
            place: What stood behind the program's flag, see `Traits.program_place`.
            replica: Which one this process is; None where only the platform knows.
        """

    def master_environment(self, place: str) -> MasterEnvironment | None:
        """What a master is given; None where its job has come to its end already.

        Raises:
            PlatformError: This process is no master that the platform started.
        """


def entry_of(name: PlatformName) -> PlatformEntry:
    """What the platform of that name offers."""
    return _entry(name.traits)


def add_platform_flags(parser: ArgumentParser) -> None:
    """Give a program the flags of which each says of which platform it is."""
    flags = parser.add_mutually_exclusive_group(required=True)
    for traits in PLATFORMS.values():
        # The place of a platform whose flag stands alone is empty, which is not None.
        if traits.program_place is None:
            flags.add_argument(traits.program_flag, action="store_const", const="")
        else:
            flags.add_argument(traits.program_flag, metavar=traits.program_place)


def entry_of_program(arguments: Namespace) -> tuple[PlatformEntry, str]:
    """The platform that started this program, and what it was told of its place."""
    for traits in PLATFORMS.values():
        place = getattr(arguments, traits.program_flag.removeprefix("--").replace("-", "_"))
        if place is not None:
            return _entry(traits), place
    raise AssertionError("argparse has taken a program without any of its required flags")


def _entry(traits: Traits) -> PlatformEntry:
    return cast("PlatformEntry", import_module(f"{traits.package}.entry").ENTRY)
