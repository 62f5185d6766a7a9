"""What the exit code of `elastic` means; scripts may rely on it."""

from enum import IntEnum

from elastic.errors import ElasticError, JobNotFoundError, JobSpecError


class ExitCode(IntEnum):
    """0 to 2 as every Unix command; the others tell how the job in question stands."""

    DONE = 0
    ERROR = 1
    USAGE = 2
    JOB_FAILED = 100
    NOT_FINISHED = 101
    """`train`, a watch, `scale` or `kill` ended before the job got there; it may go on."""
    NO_SUCH_JOB = 102
    JOB_CANCELLED = 103
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done; the job succeeded, is still running when `status` looks, or goes on "
    "after a Ctrl-C that leaves it alone; a controller was ended by SIGTERM",
    ExitCode.ERROR: "an error, said on standard error",
    ExitCode.USAGE: "a flag or a key of the job file is wrong; nothing was started",
    ExitCode.JOB_FAILED: "the job failed",
    ExitCode.NOT_FINISHED: "the command stopped waiting before the job got there",
    ExitCode.NO_SUCH_JOB: "no job of that name",
    ExitCode.JOB_CANCELLED: "the job was cancelled",
    ExitCode.INTERRUPTED: "interrupted: Ctrl-C, SIGTERM or a closed terminal",
}


def of_error(error: ElasticError) -> ExitCode:
    """The exit code that an error ends a command with."""
    match error:
        case JobSpecError():
            return ExitCode.USAGE
        case JobNotFoundError():
            return ExitCode.NO_SUCH_JOB
    return ExitCode.ERROR


def of_phase(phase: str) -> ExitCode:
    """The exit code that tells how a job ended; `phase` is a `JobPhase`."""
    match phase:
        case "Failed":
            return ExitCode.JOB_FAILED
        case "Cancelled":
            return ExitCode.JOB_CANCELLED
    return ExitCode.DONE
