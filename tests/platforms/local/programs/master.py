"""A master that trains nothing: `master.py BEHAVIOUR --job-dir DIR`.

`idle` only waits, `crash` raises, `falter` ends as if the cluster had ended it, so that it is
started again without end, ever later; `depart` ends in the middle of its preparation; `finish`
publishes success and ends, `fail` failure, `linger` only publishes, `vanish` only ends, `obey`
starts the workers that are asked for, replaces lost ones and ends the job when it is cancelled;
`lead` does so too, and tells of all its workers as running, also with its last word; `keep` says
that it keeps its newest version and ends when it is cancelled, `hoard` says so and never ends.
"""

import os
import sys
import time
from pathlib import Path

from elastic.platforms.base import ExitReason, ReplicaId
from elastic.platforms.local.surroundings import (
    LocalReplicaRunner,
    own_replica_id,
    read_spec,
    write_termination,
)
from elastic.platforms.process import STEP_NAME
from elastic.policy.replicas import KEEPING
from elastic.spec.status import JobPhase, JobStatus, Progress, WorkerStatus


def publish(runner, phase, job_name, **more):
    ended_s = time.time() if phase.is_final else None
    runner.publish_status(JobStatus(job_name=job_name, phase=phase, ended_s=ended_s, **more))


def obey(runner, spec, tells_of_workers=False):
    runner.publish_address(f"127.0.0.1:{own_replica_id().launch}")
    told = {}
    while not (control := runner.control()).cancelled:
        wanted = control.num_workers or spec.num_workers.minimum
        rows = [WorkerStatus(index=i, launch=1, phase="Running") for i in range(wanted)]
        tell = {"desired_workers": wanted, "workers": rows if tells_of_workers else ()}
        if tell != told:
            publish(runner, JobPhase.RUNNING, spec.job_name, **tell)
            told = tell
        launches = dict.fromkeys(range(wanted), 0)
        for replica in runner.observe():
            if replica.exit_reason is None:
                launches.pop(replica.id.index, None)
            elif replica.id.index in launches:
                launches[replica.id.index] = max(launches[replica.id.index], replica.id.launch)
        for index, launch in launches.items():
            runner.launch(ReplicaId("worker", index, launch + 1))
        runner.wait(10.0)
    # A real master says goodbye to its workers first; whoever kills it must wait for that.
    time.sleep(0.3)
    publish(runner, JobPhase.CANCELLED, spec.job_name, **told)


def main():
    behaviour, _, job_dir = sys.argv[1:]
    runner = LocalReplicaRunner(Path(job_dir))
    spec = read_spec(Path(job_dir))
    print(f"master {behaviour}", flush=True)
    match behaviour:
        case "idle":
            while True:
                time.sleep(60)
        case "crash":
            raise RuntimeError("no such table")
        case "falter":
            write_termination(Path(job_dir), own_replica_id(), ExitReason.KILLED, "evicted")
            sys.exit(1)
        case "depart":
            (Path(job_dir) / STEP_NAME).write_text("dataset_fn of mine")
            os._exit(3)
        case "finish":
            publish(runner, JobPhase.SUCCEEDED, spec.job_name, progress=Progress(model_version=7))
            print("last line", flush=True)
        case "fail":
            publish(runner, JobPhase.FAILED, spec.job_name, reason="BadRecords")
            print("last line", flush=True)
        case "keep" | "hoard":
            publish(runner, JobPhase.RUNNING, spec.job_name, reason=KEEPING)
            while behaviour == "hoard" or not runner.control().cancelled:
                runner.wait(10.0)
            publish(runner, JobPhase.CANCELLED, spec.job_name)
        case "linger":
            publish(runner, JobPhase.SUCCEEDED, spec.job_name)
            while True:
                time.sleep(60)
        case "vanish":
            pass
        case "obey":
            obey(runner, spec)
        case "lead":
            obey(runner, spec, tells_of_workers=True)


if __name__ == "__main__":
    main()
