"""A whole evaluation by a metric object: what several workers have seen becomes one result."""

from support.thread_job import obedient_spec, run_job, write_records

from elastic.spec.status import JobPhase


def test_all_records_are_in_its_result(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(
        data, model_def="measured.CustomModel", evaluation_data_dir=str(data), num_workers="2",
        records_per_task=9, minibatch_size=4,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED, status
    assert status.metrics["index_mean"] == 19.5
    assert status.metrics["index_seen"] == 40
