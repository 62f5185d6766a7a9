"""`make quickstart`: train on digits with two workers, and kill one of them half-way.

Runs the command that it prints, in the foreground, while a thread waits for half of the records
and then sends SIGKILL to a worker.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from elastic.errors import JobNotFoundError
from elastic.platforms.local.platform import LocalPlatform

ZOO = Path(__file__).parents[1]
JOB = "quickstart"


def main() -> int:
    """Prepare the data, train, and return the exit code of `elastic train`."""
    folder = Path(tempfile.mkdtemp(prefix="elastic-quickstart-"))
    home = os.environ.setdefault("ELASTIC_HOME", str(folder / "home"))
    prepare = [sys.executable, str(ZOO / "digits" / "prepare_data.py"), str(folder / "data")]
    subprocess.run(prepare, check=True)
    command = [
        "elastic", "train", "--platform", "local", "--job_name", JOB, "--overwrite",
        "--model_zoo", str(ZOO), "--model_def", "digits.digits_torch.CustomModel",
        "--training_data_dir", str(folder / "data" / "train.npz"),
        "--evaluation_data_dir", str(folder / "data" / "test.npz"),
        "--minibatch_size", "16", "--records_per_task", "64", "--num_epochs", "12",
        "--num_workers", "2",
        "--checkpoint_dir", str(folder / "checkpoints"),
    ]  # fmt: skip
    sys.stdout.write(f"$ {shlex.join(command)}\n")
    sys.stdout.flush()
    threading.Thread(target=kill_one_half_way, args=(Path(home),), daemon=True).start()
    program = os.path.relpath(Path(sys.executable).with_name("elastic"))
    ended = subprocess.run([program, *command[1:]], check=False)
    look = f"ELASTIC_HOME={shlex.quote(home)} {program} status {JOB} --platform local"
    sys.stdout.write(f"\nThe job is kept in {home}/jobs/{JOB}. See it once more:\n$ {look}\n")
    return ended.returncode


def kill_one_half_way(home: Path) -> None:
    """Send SIGKILL to worker 1 of the job below `home` once half of the records have counted."""
    platform = LocalPlatform(home)
    while True:
        time.sleep(0.1)
        try:
            status = platform.status(JOB)
        except JobNotFoundError:
            continue
        if status.phase.is_final:
            return
        progress = status.progress
        victim = next((w for w in status.workers if w.index == 1 and w.records_done), None)
        half_way = 0 < progress.records_total <= 2 * progress.records_done
        if half_way and victim is not None and victim.pid is not None:
            os.kill(victim.pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    sys.exit(main())
