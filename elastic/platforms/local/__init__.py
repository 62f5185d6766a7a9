"""Replicas as processes of this machine: a directory is the API server, a supervisor the kubelet.

`entry` is what commands and programs open. The command line's side is `platform`; the job's own
processes have `surroundings`; between them is the `supervisor`, with `replicas`. All of them stand
on `directory` and `processes`.

`directory` names and reads every file of a job. The master writes what it desires, the supervisor
starts and ends processes until that is so and writes what it observes; the command line writes
what users ask. Each file has one writer at a time and is replaced whole, so any process may be
killed at any point and the next one goes on from what is there.

Belongs here: processes, files and locks of this machine.
Does not belong here: how many replicas there should be, and what follows a worker's exit.
"""
