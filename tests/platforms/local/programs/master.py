"""A master that trains nothing: `master.py BEHAVIOUR --job-dir DIR`.

`idle` only waits, `crash` raises, `falter` ends as if the cluster had ended it, so that it is
started again without end, ever later; `depart` ends in the middle of its preparation; `finish`
publishes success and ends, `linger` only publishes, `vanish` only ends, `obey` starts the workers
that are asked for, replaces lost ones and ends the job when it is cancelled.
"""

import os
import sys
import time
from pathlib import Path

from elastic.platforms.base import ExitReason, ReplicaId
from elastic.platforms.last_words import STEP_NAME
from elastic.platforms.local.replica import own_replica_id, read_spec, write_termination
from elastic.platforms.local.runner import LocalReplicaRunner
from elastic.spec.status import JobPhase, JobStatus


def publish(runner, phase, job_name):
    runner.publish_status(JobStatus(job_name=job_name, phase=phase))


def obey(runner, spec):
    runner.publish_address(f"127.0.0.1:{own_replica_id().launch}")
    publish(runner, JobPhase.RUNNING, spec.job_name)
    while not (control := runner.control()).cancelled:
        wanted = control.num_workers or spec.num_workers.minimum
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
    publish(runner, JobPhase.CANCELLED, spec.job_name)


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
            publish(runner, JobPhase.SUCCEEDED, spec.job_name)
        case "linger":
            publish(runner, JobPhase.SUCCEEDED, spec.job_name)
            while True:
                time.sleep(60)
        case "vanish":
            pass
        case "obey":
            obey(runner, spec)


if __name__ == "__main__":
    main()
