"""The kinds of jobs and the platforms that they run on: tables by which the rest tells them apart.

`import elastic` brings this module, so it imports nothing large.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final


class Mode(StrEnum):
    """What `dataset_fn(dataset, mode)` is asked to prepare records for."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


class JobKind(StrEnum):
    """What a job does; each is a command of that name."""

    TRAIN = "train"
    EVALUATE = "evaluate"
    PREDICT = "predict"

    @property
    def mode(self) -> Mode:
        """What `dataset_fn` prepares the records of such a job for."""
        return _MODES[self]

    @property
    def can_resume(self) -> bool:
        """Whether such a job keeps anything that another can go on from."""
        return self is not JobKind.EVALUATE

    @property
    def data_setting(self) -> str:
        """The setting that names the records of such a job."""
        return f"{self.mode}_data_dir"


_MODES: Final = {
    JobKind.TRAIN: Mode.TRAINING,
    JobKind.EVALUATE: Mode.EVALUATION,
    JobKind.PREDICT: Mode.PREDICTION,
}
EVERY_KIND: Final = tuple(JobKind)
TRAIN: Final = (JobKind.TRAIN,)
EVALUATE: Final = (JobKind.EVALUATE,)
PREDICT: Final = (JobKind.PREDICT,)


# The platforms that jobs run on: one table of what the rest has to know to tell them apart.
#
# A further platform is a row here and a package, which `platforms.registry` opens by the row.
# Nothing else asks which platform it is: settings, commands and programs ask what it is like.


METRICS_PORT: Final = 9464
"""Of pods, unless `metrics_port` says otherwise; the one that OpenTelemetry's exporters take."""

MODEL_ZOO_PATH: Final = Path("/model_zoo")
"""Where an image has the folder of the model."""


class PlatformName(StrEnum):
    """Where replicas run."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"

    @property
    def traits(self) -> "Traits":
        return PLATFORMS[self]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a platform is like.

    Attributes:
        package: Holds a module `entry`, see `platforms.registry`.
        program_flag: By which the programs of replicas are told that they are of this platform.
        program_place: What stands behind that flag, for the usage; None where nothing does.
        is_here: Its replicas are processes of this machine, and end with who watches their job.
        shares_files: Its replicas find the files of the machine that submits, under the same paths.
            Elsewhere what they write goes with them, unless a volume keeps it.
        shares_ports: Several replicas of a job may have to share the ports of one machine.
        has_images: Its replicas run in an image, which brings the model and its framework.
        has_secrets: It keeps secrets, which replicas can be given by name.
        has_controllers: A controller may make its jobs from resources, and choose their sizes.
        names_clusters: There are several of it, told apart by context and namespace.
        metrics_host: The address that replicas serve their metrics at.
        metrics_port: The port of the metrics where the job names none; 0 for none at all.
        is_encrypted: Replicas encrypt their calls where the job does not say whether.
    """

    package: str
    program_flag: str
    program_place: str | None
    is_here: bool
    shares_files: bool
    shares_ports: bool
    has_images: bool
    has_secrets: bool
    has_controllers: bool
    names_clusters: bool
    metrics_host: str
    metrics_port: int
    is_encrypted: bool


PLATFORMS: Final[Mapping[PlatformName, Traits]] = {
    PlatformName.KUBERNETES: Traits(
        package="elastic.platforms.kubernetes",
        program_flag="--kubernetes",
        program_place=None,
        is_here=False,
        shares_files=False,
        shares_ports=False,
        has_images=True,
        has_secrets=True,
        has_controllers=True,
        names_clusters=True,
        # All of the pod's addresses, of whichever family the cluster is.
        metrics_host="::",
        metrics_port=METRICS_PORT,
        is_encrypted=True,
    ),
    PlatformName.LOCAL: Traits(
        package="elastic.platforms.local",
        program_flag="--job-dir",
        program_place="DIR",
        is_here=True,
        shares_files=True,
        shares_ports=True,
        has_images=False,
        has_secrets=False,
        has_controllers=False,
        names_clusters=False,
        metrics_host="127.0.0.1",
        # Pods have ports of their own; a machine's are for its user to give away.
        metrics_port=0,
        # What does not leave the machine is heard by nobody who could not read its memory.
        is_encrypted=False,
    ),
}
"""In the order in which they are tried where nobody names one; the last is always there."""

HERE: Final = next(name for name, traits in PLATFORMS.items() if traits.is_here)
"""The platform of this machine."""


def traits_of(name: object) -> Traits | None:
    """What a platform is like that somebody has named; None where there is none of that name."""
    try:
        return PlatformName(str(name)).traits
    except ValueError:
        return None
