"""The same kills in a job of elastic and under torchrun's elastic restart, for the picture.

`make figure` runs both, writes what happened to `docs/kills.json`, and draws `docs/kills.svg`.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from benchmarks.jobs import threads_environment
from benchmarks.processes import ROOT
from elastic.platforms.base import ReplicaPhase
from elastic.platforms.local.directory import JobDirectory
from elastic.platforms.local.platform import LocalPlatform
from elastic.spec.job import JobSpec
from elastic.spec.platforms import PlatformName
from elastic.spec.settings import WorkerRange
from elastic.spec.status import JobPhase

RESULT: Final = ROOT / "docs" / "kills.json"
NUM_WORKERS: Final = 3
MINIBATCH_SIZE: Final = 16
NUM_RECORDS: Final = 2400
NUM_EPOCHS: Final = 16
DELAY_S: Final = 0.1
CHECKPOINT_S: Final = 5.0
KILLS: Final = ((15.0, ("worker-1",)), (35.0, ("worker-0", "worker-2")), (55.0, ("master",)))
"""Seconds after the first step → who is killed; torchrun's master is its agent."""
SEPARATE_STORES: Final = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""With torch 2.13's default, ranks that are started again could not connect to each other."""
TIMEOUT_S: Final = 600.0
POLL_S: Final = 0.05


class Steps:
    """What the processes of one run have noted of their steps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[dict[str, Any]]:
        """Every step so far, of all processes, with the process that made it."""
        found = []
        for path in self._folder.glob("*.jsonl"):
            # The last line of a process that was killed may be cut short.
            lines = [line for line in path.read_text().splitlines(True) if line.endswith("\n")]
            found += [json.loads(line) | {"pid": int(path.stem)} for line in lines]
        return sorted(found, key=lambda step: float(step["time_s"]))

    def pid(self, worker: str) -> int | None:
        """The process that was last at work as that worker, if it is alive."""
        pids = [step["pid"] for step in self.all() if step["worker"] == worker]
        return pids[-1] if pids and _is_alive(pids[-1]) else None


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_in_turn(steps: Steps, master_pid: Callable[[], int]) -> list[dict[str, Any]]:
    """Send SIGKILL as `KILLS` says, once there is a first step; gives the moments."""
    deadline_s = time.time() + TIMEOUT_S
    while not (seen := steps.all()):
        if time.time() > deadline_s:
            raise RuntimeError(f"no step within {TIMEOUT_S:g} s")
        time.sleep(POLL_S)
    killed = []
    for after_s, names in KILLS:
        time.sleep(max(0.0, seen[0]["time_s"] + after_s - time.time()))
        pids = [master_pid() if name == "master" else _living(steps, name) for name in names]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        killed.append({"time_s": time.time(), "who": list(names)})
    return killed


def _living(steps: Steps, worker: str) -> int:
    """The process of a worker, waited for where it is being replaced."""
    while (pid := steps.pid(worker)) is None:
        time.sleep(POLL_S)
    return pid


def run_elastic(folder: Path, data: Path) -> dict[str, Any]:
    """A job of elastic."""
    log = folder / "steps"
    log.mkdir()
    spec = JobSpec(
        job_name="kills",
        platform=PlatformName.LOCAL,
        model_zoo=ROOT / "benchmarks" / "models",
        model_def="paced_torch.CustomModel",
        model_params={"delay_s": DELAY_S, "log_dir": str(log)},
        training_data_dir=str(data),
        minibatch_size=MINIBATCH_SIZE,
        records_per_task=10 * MINIBATCH_SIZE,
        num_epochs=NUM_EPOCHS,
        num_workers=WorkerRange.parse(NUM_WORKERS),
        grads_to_wait=NUM_WORKERS,
        recovery_interval=CHECKPOINT_S,
        envs=threads_environment(1),
    )
    platform = LocalPlatform(folder / "home")
    directory = JobDirectory(folder / "home" / "jobs" / spec.job_name)
    steps = Steps(log)

    def master_pid() -> int:
        for observed in directory.observed():
            replica = observed.replica
            if replica.id.role == "master" and replica.phase is ReplicaPhase.RUNNING:
                assert replica.pid is not None
                return replica.pid
        raise RuntimeError("the job has no master")

    platform.submit(spec)
    try:
        killed = kill_in_turn(steps, master_pid)
        while not (status := platform.status(spec.job_name)).phase.is_final:
            time.sleep(POLL_S)
    finally:
        platform.kill(spec.job_name, TIMEOUT_S)
    if status.phase is not JobPhase.SUCCEEDED:
        raise RuntimeError(f"the job ended as {status.phase}: {status.message}")
    audit = [
        f"{each.num_epochs} epochs, each {each.records:,} records = {each.committed:,} committed + "
        f"{each.skipped:,} skipped"
        for each in status.audits
    ]
    return _result(steps, killed, "; ".join(audit))


def run_torchrun(folder: Path, data: Path) -> dict[str, Any]:
    """The same loop under torchrun, which a shell's loop starts again where it is killed itself."""
    log = folder / "steps"
    log.mkdir()
    command = [
        str(Path(sys.executable).with_name("torchrun")), "--standalone", "--max-restarts", "100",
        "--nproc-per-node", str(NUM_WORKERS), "--monitor-interval", "0.1",
        str(ROOT / "benchmarks" / "baselines" / "restarted_ddp.py"),
        "--model_zoo", str(ROOT / "benchmarks" / "models"),
        "--model_def", "paced_torch.CustomModel",
        "--model_params", f"delay_s={DELAY_S},log_dir={log}", "--data", str(data),
        "--checkpoint", str(folder / "checkpoint.pt"), "--checkpoint_s", str(CHECKPOINT_S),
        "--minibatch_size", str(MINIBATCH_SIZE), "--epochs", str(NUM_EPOCHS),
    ]  # fmt: skip
    steps = Steps(log)
    agents: list[subprocess.Popen[bytes]] = []
    errors = (folder / "torchrun.log").open("wb")

    def keep_up() -> None:
        while not agents or agents[-1].wait() != 0:
            _end_ranks(log)
            environment = os.environ | threads_environment(1) | SEPARATE_STORES
            agents.append(subprocess.Popen(command, env=environment, stdout=errors, stderr=errors))

    keeper = threading.Thread(target=keep_up, daemon=True)
    keeper.start()
    killed = kill_in_turn(steps, lambda: agents[-1].pid)
    keeper.join(TIMEOUT_S)
    errors.close()
    if keeper.is_alive():
        raise RuntimeError(f"torchrun has not ended: see {folder}/torchrun.log")
    return _result(steps, killed, "")


def _end_ranks(log: Path) -> None:
    """End the ranks that an agent has left, which would train on beside those of the next one."""
    for process in psutil.process_iter(["cmdline"]):
        if any(str(log) in argument for argument in process.info["cmdline"] or ()):
            process.kill()


def _result(steps: Steps, killed: Sequence[dict[str, Any]], audit: str) -> dict[str, Any]:
    """Records of each worker and second, with times from the first step."""
    made = steps.all()
    begin_s = made[0]["time_s"]
    seconds = int(made[-1]["time_s"] - begin_s) + 1
    workers = {f"worker-{index}": [0] * seconds for index in range(NUM_WORKERS)}
    for step in made:
        workers[step["worker"]][int(step["time_s"] - begin_s)] += step["records"]
    computed = sum(map(sum, workers.values()))
    return {
        "records_per_s": workers,
        "kills": [
            {"at_s": round(each["time_s"] - begin_s, 2), "who": each["who"]} for each in killed
        ],
        "seconds": round(made[-1]["time_s"] - begin_s, 1),
        "records": NUM_RECORDS * NUM_EPOCHS,
        "computed_again": computed - NUM_RECORDS * NUM_EPOCHS,
        "audit": audit,
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="elastic-kills-") as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        x = rng.normal(size=(NUM_RECORDS, 8)).astype(np.float32)
        np.savez(folder / "train.npz", x=x, y=x.sum(axis=1, keepdims=True))
        results = {}
        for title, run in (("elastic", run_elastic), ("torchrun", run_torchrun)):
            (folder / title).mkdir()
            results[title] = run(folder / title, folder / "train.npz")
        settings = {"workers": NUM_WORKERS, "delay_s": DELAY_S, "checkpoint_s": CHECKPOINT_S}
        RESULT.write_text(json.dumps({"settings": settings, **results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
