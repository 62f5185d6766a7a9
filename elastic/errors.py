"""Every error this project raises on purpose.

    ElasticError
    ├── UserError              the job is wrong; the user can mend it
    │   ├── JobSpecError       a flag or a key of the job file
    │   ├── ModelDefError      the user's module
    │   ├── DataError          a missing, empty or malformed record source
    │   ├── DescriptionError   a file that describes a cluster or a workload
    │   ├── CheckpointError    a cut that cannot be used
    │   ├── ImageError         an image that cannot be built, pulled or pushed as asked
    │   └── TrainingError      NaN loss, a record that always fails, too many crashes
    ├── JobNotFoundError       no job of that name
    ├── JobExistsError         the name is taken
    ├── TransitionError        a state that cannot follow another: a mistake of ours
    └── InfrastructureError           the machine or the cluster failed; trying again may help
        ├── PlatformError      a replica could not be started, watched or stopped
        └── RpcError           a peer is away, refused us, or sent nonsense

A message says what happened, which value it was, and what to do.
"""


def legible(text: str) -> str:
    """A text that every document and message can hold.

    What is no UTF-8 in the name of a file is a lone surrogate in Python's texts, and in those of
    the errors that name it, and cannot be encoded.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def told(error: BaseException) -> str:
    """What an error is told as: ours by their text, others with what they are."""
    if isinstance(error, ElasticError):
        return str(error)
    return legible(f"{type(error).__name__}: {error}")


class ElasticError(Exception):
    """Base of all deliberate errors; its text is shown to people without a traceback."""

    def __str__(self) -> str:
        return legible(super().__str__())


class UserError(ElasticError):
    """The job is wrong, and the same job fails again until its author changes it."""


class JobSpecError(UserError):
    """A flag, or a key of the job file, has no or no usable meaning."""


class ModelDefError(UserError):
    """The user's module breaks the contract of `docs/model_def.md`."""


class ModelFaultError(ModelDefError):
    """A step shows it, and no record is to blame: others would fail as well, or not count."""


class DataError(UserError):
    """A record source is missing, empty or malformed."""


class DescriptionError(UserError):
    """A file that describes a cluster or a workload cannot be read, or makes no sense."""


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or belongs to another job or model."""


class ImageError(UserError):
    """An image cannot be built, pulled or pushed as the user asked for it."""


class TrainingError(UserError):
    """Training itself cannot go on: NaN, a poisoned record, or too many crashes.

    Attributes:
        reason: One word for the job's status.
    """

    def __init__(self, message: str, reason: str = "Training") -> None:
        super().__init__(message)
        self.reason = reason


class JobNotFoundError(ElasticError):
    """No job of that name is known to the platform."""


class JobExistsError(ElasticError):
    """A job of that name is there already."""


class TransitionError(ElasticError):
    """A job or replica was about to enter a phase that cannot follow the one it is in."""


class InfrastructureError(ElasticError):
    """The machine or the cluster failed; the job itself may be fine."""


class PlatformError(InfrastructureError):
    """A replica could not be started, watched or stopped."""


class RpcError(InfrastructureError):
    """A peer is away, refused the call, or sent something that cannot be read."""


class SupersededError(Exception):
    """A newer launch of this replica has taken over."""
