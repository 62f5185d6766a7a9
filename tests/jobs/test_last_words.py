"""What a process leaves in its log that ends in C, where no exception can be caught."""

from support.local_job import LocalJob
from support.thread_job import obedient_spec, write_records

from elastic.spec.status import JobPhase


def test_a_crash_in_c_leaves_its_traceback(tmp_path):
    spec = obedient_spec(
        write_records(tmp_path / "train.npz"),
        model_params={"num_records": 40, "how": "segfault"},
        max_worker_failures=0,
    ).model_copy(update={"model_def": "fragile.CustomModel"})
    with LocalJob(spec, tmp_path) as job:
        assert job.wait().phase is JobPhase.FAILED
        lines = [line.text for line in job.platform.logs("job", ["worker-0"], False, None)]
    begin = lines.index("Fatal Python error: Segmentation fault")
    assert any("fragile.py" in line and "in __init__" in line for line in lines[begin:])
    assert any("elastic/worker/__main__.py" in line for line in lines[begin:])
    assert any("registered as worker 0, launch 1" in line for line in lines[:begin])
