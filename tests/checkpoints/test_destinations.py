"""What a user can do about a disk that takes nothing, and what may not be written over."""

import errno

import pytest

from elastic.checkpoints.destinations import advice, check_destinations
from elastic.errors import JobSpecError
from elastic.spec.job import JobSpec


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "free space there"),
        (errno.EACCES, "make it writable"),
        (errno.EROFS, "in a pod below the mount_path of a --volume"),
        (errno.EIO, "name another path"),
    ],
    ids=errno.errorcode.get,
)
def test_advice(number, words):
    assert words in advice(OSError(number, "no"))


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("there/", "is a file: name a folder that is not there yet"),
        ("full/", "holds other files than a SavedModel"),
        ("there/model.keras", "cannot be written: {folder}/there: Not a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_found_at_the_start(output, words, tmp_path):
    (tmp_path / "there").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").touch()
    spec = JobSpec(
        platform="local", model_zoo="zoo", model_def="a.B", training_data_dir="data",
        minibatch_size=1, output=f"{tmp_path}/{output}",
    )  # fmt: skip
    with pytest.raises(JobSpecError) as raised:
        check_destinations(spec)
    assert words.format(folder=tmp_path) in str(raised.value)
