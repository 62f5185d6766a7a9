"""Data that is not there, models that are none, a port that is taken: said before training."""

import os
import re
import socket

import numpy as np
import pytest
from support.thread_job import ZOO, obedient_spec, run_job, write_records

from elastic.spec.status import JobPhase

SEE_LOGS = "; the master's log has the traceback"
WRONG_PATH = "does not exist: check the path; the replicas of a job look for it where they run"


def _failure(spec, tmp_path):
    """Reason and message of a job that must fail, and must not have trained."""
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.FAILED
    assert status.progress.model_version == 0
    assert [event.kind for event in status.events] == ["JobFailed"]
    return status.reason, status.message


def test_missing_training_data(tmp_path):
    path = tmp_path / "none.npz"
    assert _failure(obedient_spec(path), tmp_path) == ("Data", f"{path} {WRONG_PATH}")


def test_missing_evaluation_data(tmp_path):
    path = tmp_path / "none.npz"
    spec = obedient_spec(write_records(tmp_path / "train.npz"), evaluation_data_dir=str(path))
    assert _failure(spec, tmp_path) == ("Data", f"{path} {WRONG_PATH}")


def test_an_empty_folder(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    assert _failure(obedient_spec(folder), tmp_path) == (
        "Data",
        f"{folder} is an empty folder: put the records there, or check the path",
    )


@pytest.mark.parametrize("make", ["no bytes", "no rows"])
def test_an_empty_file(make, tmp_path):
    path = tmp_path / "train.npz"
    if make == "no bytes":
        path.touch()
    else:
        np.savez(path, index=np.zeros(0, np.int64))
    assert _failure(obedient_spec(path), tmp_path) == (
        "Data",
        f"{path} holds no records: fill it, or take it out of the data",
    )


def test_an_unreadable_file(tmp_path):
    path = tmp_path / "train.npz"
    if os.geteuid() == 0:
        # Root may read whatever has a mode; nobody can read a socket.
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.relpath(path))
        why = "No such device or address): check the file and its disk"
    else:
        write_records(path).chmod(0)
        why = "Permission denied): let the user that runs the job read it"
    assert _failure(obedient_spec(path), tmp_path) == ("Data", f"{path} cannot be read ({why}")


def test_a_file_of_another_format(tmp_path):
    path = tmp_path / "train.npz"
    path.write_bytes(b"index,label\n1,2\n")
    assert _failure(obedient_spec(path), tmp_path) == (
        "Data",
        f"{path} is no readable npz archive (File is not a zip file): it is damaged or of another "
        "format; write it again with numpy",
    )


def test_a_reader_that_cannot_be_made(tmp_path):
    spec = _module(tmp_path, "def custom_data_reader(data_origin, records_per_task):\n    1 / 0\n")
    assert _failure(spec, tmp_path) == (
        "Data",
        "custom_data_reader('table', 20) failed: ZeroDivisionError: division by zero "
        f"({tmp_path}/zoo/mine.py:3){SEE_LOGS}",
    )


def test_a_module_that_raises_when_imported(tmp_path):
    spec = _module(tmp_path, "SIZES = [1, 2]\nLARGEST = SIZES[2]\n")
    assert _failure(spec, tmp_path) == (
        "ModelDef",
        "module mine cannot be imported: IndexError: list index out of range "
        f"({tmp_path}/zoo/mine.py:3){SEE_LOGS}",
    )


def test_the_traceback_in_the_master_s_log_is_the_user_s(tmp_path, caplog):
    spec = _module(tmp_path, "def make():\n    raise KeyError('colour')\nmake()\n")
    _failure(spec, tmp_path)
    (trace,) = [r.getMessage() for r in caplog.records if "Traceback" in r.getMessage()]
    assert re.findall(r'File "(.*)", line (\d+), in (.*)', trace) == [
        (f"{tmp_path}/zoo/mine.py", "4", "<module>"),
        (f"{tmp_path}/zoo/mine.py", "3", "make"),
    ]
    assert trace.endswith("KeyError: 'colour'")


def test_a_package_that_is_not_installed(tmp_path):
    spec = _module(tmp_path, "import not_installed\n")
    assert _failure(spec, tmp_path) == (
        "ModelDef",
        "module mine cannot be imported: ModuleNotFoundError: No module named 'not_installed' "
        f"({tmp_path}/zoo/mine.py:2){SEE_LOGS}",
    )


def test_a_model_that_cannot_be_made(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, model_params={"units": 3})
    assert _failure(spec, tmp_path) == (
        "ModelDef",
        "making the model with the parameters {'units': 3} failed: TypeError: "
        "CustomModel.__init__() got an unexpected keyword argument 'units'",
    )


def test_an_optimizer_that_is_none(tmp_path):
    spec = _module(
        tmp_path, "def optimizer(parameters):\n    return list(parameters)\n", records=True
    )
    assert _failure(spec, tmp_path) == (
        "ModelDef", "optimizer returned a list: return a torch.optim.Optimizer"
    )  # fmt: skip


def test_an_optimizer_that_fails_at_its_first_step(tmp_path):
    spec = _module(
        tmp_path,
        "class Failing(CountingSGD):\n"
        "    def step(self, closure=None):\n"
        "        raise ValueError('no step')\n"
        "def optimizer(parameters):\n"
        "    return Failing(parameters)\n",
        records=True,
    )
    assert _failure(spec, tmp_path) == (
        "Training",
        "the optimizer failed at step 1: ModelDefError: the optimizer's step failed: "
        f"ValueError: no step ({tmp_path}/zoo/mine.py:4){SEE_LOGS}",
    )


def test_a_port_that_is_in_use(tmp_path):
    data = write_records(tmp_path / "train.npz")
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        failure = _failure(obedient_spec(data, master_port=port), tmp_path)
    assert failure == (
        "JobSpec",
        f"master_port={port} is in use on 127.0.0.1: choose another, or 0 for a free one",
    )


def test_a_checkpoint_to_begin_from_that_is_none(tmp_path):
    data = write_records(tmp_path / "train.npz")
    spec = obedient_spec(data, checkpoint_filename_for_init=str(tmp_path))
    assert _failure(spec, tmp_path) == (
        "Checkpoint",
        f"checkpoint_filename_for_init={tmp_path} is neither a checkpoint nor a folder of them: it "
        "has no manifest.json, and no folder version-N",
    )


def _module(tmp_path, text, records=False):
    """A job whose module is the obedient one with something added."""
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    (zoo / "obedient.py").symlink_to(ZOO / "obedient.py")
    (zoo / "mine.py").write_text("from obedient import *\n" + text)
    data = write_records(tmp_path / "train.npz") if records else "table"
    spec = obedient_spec(data)
    return spec.model_copy(update={"model_zoo": zoo, "model_def": "mine.CustomModel"})
