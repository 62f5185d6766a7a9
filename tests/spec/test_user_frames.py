"""What is told of the exceptions of the user's code."""

import errno
import os

import pytest

from elastic.spec.model_def import error_text

ADVICE = "write to /tmp, or what is to last below the mount_path of a --volume"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, os.strerror(errno.EROFS), "/model_zoo/cache"),
        RuntimeError("unable to create file (error message = 'Read-only file system')"),
    ],
    ids=["python", "library"],
)
def test_what_cannot_be_written_in_a_pod_is_told_with_where_it_can(error):
    assert error_text(error).endswith(f": {ADVICE}")
    assert type(error).__name__ in error_text(error)


def test_other_errors_are_told_as_they_are():
    assert error_text(OSError(errno.ENOENT, "No such file or directory", "x")) == (
        "FileNotFoundError: [Errno 2] No such file or directory: 'x'"
    )
