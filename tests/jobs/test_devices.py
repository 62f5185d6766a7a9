"""What the processes of a job leave of a GPU to each other."""

import pytest
from support.local_job import LocalJob
from support.thread_job import obedient_spec, write_records


@pytest.mark.parametrize(
    ("envs", "found"),
    [({}, "true"), ({"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, "false")],
    ids=["by-default", "as-the-user-says"],
)
def test_tensorflow_takes_the_memory_of_a_gpu_as_it_is_needed(tmp_path, envs, found):
    """Said before the user's module is imported, which may use the GPU at once."""
    notes = tmp_path / "notes"
    notes.mkdir()
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), model_def="noting_keras.CustomModel",
        num_workers=1, envs={"NOTES": str(notes), **envs},
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job:
        job.succeed()
    noted = {path.name.rpartition("-")[0]: path.read_text() for path in notes.iterdir()}
    assert noted == {"master-0-1": found, "worker-0-1": found}


def test_each_worker_has_its_own_of_the_gpus_that_a_job_sees(tmp_path):
    """Set before the user's module is imported, and for workers alone."""
    notes = tmp_path / "notes"
    notes.mkdir()
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"), model_def="noting.CustomModel",
        num_workers=2, envs={"NOTES": str(notes), "CUDA_VISIBLE_DEVICES": "5,6,7"},
    )  # fmt: skip
    with LocalJob(spec, tmp_path) as job:
        job.succeed()
    noted = {path.name.rpartition("-")[0]: path.read_text() for path in notes.iterdir()}
    assert noted == {"master-0-1": "5,6,7", "worker-0-1": "5", "worker-1-1": "6"}
